// Command lockdog shows who holds and awaits the locks of a Redis, runs commands under a lock, takes locks away, and tells what a Redis will do to
// locks. See docs/COMMAND.md, or
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
