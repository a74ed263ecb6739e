//go:build !linux

package pin

import "errors"

// One fails: only Linux can do it.
func One() (undo func() error, err error) {
	return nil, errors.New("processes can be kept on one CPU on Linux only; leave those works out")
}
