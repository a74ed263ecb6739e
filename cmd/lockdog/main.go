// Command lockdog shows the holders and waiters of the locks in a Redis, runs commands under a lock, takes locks away,
// and checks what on a Redis will hurt locks. See docs/COMMAND.md, or
//
//	lockdog -h
package main

import (
	"os"
	"syscall"
)

func main() {
	if guard() {
		return
	}
	code := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if code == exitSignal+int(syscall.SIGINT) {
		endByInterrupt()
	}
	os.Exit(code)
}
