//go:build !linux

package pin

import "errors"

// One fails: the package works on Linux only.
func One() (undo func() error, err error) {
	return nil, errors.New("processes can be kept on one CPU on Linux only; leave those works out")
}
