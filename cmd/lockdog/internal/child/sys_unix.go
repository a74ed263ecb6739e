//go:build unix && !linux

package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const adopts = false

func adoptOrphans() {}

func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func descendants(map[int]bool) []int { return nil }

const clockID = unix.CLOCK_MONOTONIC
