//go:build !linux

package pin

import "errors"

// One can't be had here.
func One() (undo func() error, err error) {
	return nil, errors.New("processes can be kept on one CPU on Linux only; leave those works out")
}
