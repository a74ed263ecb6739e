// Package doccheck has tests only: they compare what README.md and docs/ say with the code, both ways. A table that
// differs is printed as it should be, to be pasted.
package doccheck
