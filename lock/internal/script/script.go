// Package script has the Lua scripts, builds their calls and parses their replies. No other package depends on a
// position in KEYS, in ARGV or in a reply, but for one thing: the first key routes a call.
//
// The file of each script begins with its KEYS, ARGV and replies, or names the file that describes them. The other .lua
// files are fragments that scripts share. They come before the script; releaseRest and handOver also put some in
// between.
package script

import (
	"embed"
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// The scripts have no shebang line: with one, a full Redis refuses even renewals.
//
//go:embed *.lua
var files embed.FS

// ifFairWaits is Lua code that wakes the first waiter for a FairMutex with the lock's name, if the owner that releases
// still has the lock and the lock has the mark '~' (see acquire.lua).
var ifFairWaits = "if found[1] and fairWaits then\n" + read("owner", "fair_queue", "fair_wake", "fair_marked") + "end\n"

// function returns Lua code that defines a function. Its parameters are KEYS and ARGV, and its body is the source of a
// script.
func function(name string, source ...string) string {
	return name + " = function(KEYS, ARGV)\n" + strings.Join(source, "") + "end\n"
}

// handOver returns the code of a release that hands the lock over if no other client is seen to wait (near.lua). If it
// hasn't handed the lock over, it goes on as a release does. Its parts run one after the other, in one scope:
//
//	release_begin                      reads the lock
//	near                               finds out whether other clients wait
//	  if none do: hand_over            hands the lock over, and returns, unless it comes too late
//	if fairWaits: fair_marked          wakes the first waiter for a FairMutex
//	if setMayHaveOthers: next          chooses a client; returns if it has granted that client the lock
//	release                            deletes the lock, and wakes the client that was chosen, or all
//
// needed are fragments that hand_over.lua and next.lua need. They are pasted just before these, so that a release that
// runs neither of them doesn't ask for the time. A batch passes none, because it begins with them.
func handOver(needed ...string) string {
	return read("release_begin", "near") +
		"if near then\n" + read(needed...) + read("hand_over") + "end\n" +
		releaseRest(needed...)
}

// releaseRest returns the part of handOver from fair_marked on. A release is release_begin and this part.
func releaseRest(needed ...string) string {
	return ifFairWaits +
		"if found[1] and setMayHaveOthers and ARGV[4] ~= '0' then\n" + read(needed...) + read("next") + "end\n" +
		read("release")
}

// load returns a script: the shared fragments, followed by the file with the script's name.
func load(name string, shared ...string) *backend.Script {
	return build(name, read(shared...), read(name))
}

// build returns a script that consists of texts.
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
