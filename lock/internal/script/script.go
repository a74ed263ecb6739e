// Package script has the Lua scripts, builds their calls and parses their replies. No other package depends on a
// position in KEYS, in ARGV or in a reply, but for one thing: the first key routes a call.
//
// The file of each script begins with its KEYS, ARGV and replies, or names the file that describes them. The other .lua
// files are fragments that scripts share. They come before the script; release and handOver also put some in between.
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

// wakeFair is Lua code that wakes the first waiter for a FairMutex with the lock's name, if the lock is the owner's and
// has the mark '~'.
var wakeFair = "if found[1] and fairWaits then\n" + read("owner", "fair_queue", "fair_wake", "fair_marked") + "end\n"

// function returns Lua code that defines a function. Its parameters are KEYS and ARGV, and its body is the source of a
// script.
func function(name string, source ...string) string {
	return name + " = function(KEYS, ARGV)\n" + strings.Join(source, "") + "end\n"
}

// release returns the code that follows entry.lua in a release. shared are the fragments to put before next.lua: none
// in a batch, which begins with them. With handOver a release is, if nothing is shared:
//
//	entry                                          reads the lock
//	if it may be handed over: near, then hand_over, which may return
//	if a FairMutex's waiter may wait: fair_wake    wakes it
//	if others wait: next                           chooses a client, and may grant it the lock, and return
//	release                                        deletes the lock, and wakes the client that was chosen, or all
func release(shared ...string) string {
	return wakeFair +
		"if found[1] and othersWait and ARGV[4] ~= '0' then\n" + read(shared...) + read("next") + "end\n" +
		read("release")
}

// handOver returns the code of a release that hands the lock over if no other client is seen to wait (near.lua). If it
// hasn't handed the lock over, it goes on as release does. shared are as for release.
func handOver(shared ...string) string {
	return read("entry", "near") + "if near then\n" + read(shared...) + read("hand_over") + "end\n" + release(shared...)
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
