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

func listsDescendants() bool { return false }

func descendants(map[int]bool) []int { return nil }

const clockID = unix.CLOCK_MONOTONIC
