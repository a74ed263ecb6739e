// Package mixin has tests only. They check that the committed files are what dashboards/mixin renders, that another
// _config works as well, and that Kubernetes accepts its files. They are in this module because of what they import.
package mixin
