// Package mixin has tests only: what is committed is what dashboards/mixin renders, by its _config another that works
// as well, and what Kubernetes is given it understands. They are here for what they import.
package mixin
