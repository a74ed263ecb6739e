// Command lockdog shows the holders and waiters of the locks in a Redis, runs commands under a lock, takes locks away,
// and checks what on a Redis will hurt locks. See docs/COMMAND.md, or
//
//	lockdog -h
package main

import "os"

func main() {
	if guard() {
		return
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
