// Package script knows the Lua scripts: what each takes, which keys it touches and what its reply means. Nobody else knows a position in KEYS, in
// ARGV or in a reply.
//
// Each .lua file begins with its KEYS, ARGV and replies, or says which other file has them. A file that returns nothing by itself is a fragment: it is
// put before the scripts that share it.
package script

import (
	"embed"
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// The scripts have no shebang line: with one, a Redis that is full refuses even renewals.
//
//go:embed *.lua
var files embed.FS

// wakeFair wakes the next in the queue of a FairMutex of the lock's name, if the owner's entry says that there is one. Other releases don't run it.
var wakeFair = "if found[1] and fairWaits then\n" + read("owner", "fair_queue", "fair_wake", "fair_marked") + "end\n"

// function makes a function of a script.
func function(name, parameters string, source ...string) string {
	return name + " = function(" + parameters + ")\n" + strings.Join(source, "") + "end\n"
}

// release is what follows entry.lua in a release. Where others wait, it finds out who is next, for which it may need shared fragments.
func release(shared ...string) string {
	return wakeFair + "if found[1] and othersWait and ARGV[4] ~= '0' then\n" + read(shared...) + read("next") + "end\n" + read("release")
}

// handOver hands the lock over if no other process waits, for which it may need shared fragments. It releases what can't be handed over.
func handOver(shared ...string) string {
	return read("entry", "near") + "if near then\n" + read(shared...) + read("hand_over") + "end\n" + release(shared...)
}

// load returns the script in a file, after the fragments that it shares with others.
func load(name string, shared ...string) *backend.Script {
	return build(name, read(shared...), read(name))
}

// build returns the script that consists of some texts, one after the other.
func build(name string, texts ...string) *backend.Script {
	return backend.NewScript(name, strings.Join(texts, ""))
}

func read(names ...string) (source string) {
	for _, name := range names {
		text, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // the file is part of the program
		}
		source += string(text)
	}
	return source
}
