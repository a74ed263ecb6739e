//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func ownExecutable() (string, error) { return os.Executable() }

func keepName() {}

const adopts = false

func adoptOrphans() {}

func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func whileBlocked(_ []syscall.Signal, f func() error) error { return f() }

func unblock([]syscall.Signal) {}

func isStopped(int) bool { return true } // it may be: nothing is lost if a signal to continue is sent

func listsDescendants() bool { return false }

func descendants(map[int]bool) []int { return nil }

const clockID = unix.CLOCK_MONOTONIC
