package lock

import (
	"embed"
	"strings"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// The scripts have no shebang line: with one, a Redis that is full refuses even renewals.
//
//go:embed scripts/*.lua
var scriptFiles embed.FS

var (
	acquireScript  = loadScript("acquire", "clock", "token")
	renewScript    = loadScript("renew", "clock", "demoted")
	releaseScript  = newScript("release", readScripts("channel", "tell", "entry"), wakeFair, readScripts("release"))
	handOverScript = newScript("hand_over", readScripts("channel", "tell"), handOver("clock", "token"))
	forceScript    = loadScript("force", "channel", "tell", "forced", "fair_queue", "fair_wake")
	inspectScript  = loadScript("inspect", "clock")

	countScript            = loadScript("count")
	semaphoreAcquireScript = loadScript("semaphore_acquire", "clock")
	semaphoreUndoScript    = loadScript("semaphore_undo", "clock", "tell")
	semaphoreAddScript     = loadScript("semaphore_add", "clock", "tell")
	semaphoreSetScript     = loadScript("semaphore_set", "clock", "tell")
	permitAcquireScript    = loadScript("permit_acquire", "clock", "token", "tell")
	permitReleaseScript    = loadScript("permit_release", "clock", "tell")
	latchSetScript         = loadScript("latch_set", "clock", "tell")
	latchCountDownScript   = loadScript("latch_count_down", "clock", "tell")
	latchWaitScript        = loadScript("latch_wait", "clock")

	fairAcquireScript = loadScript("fair_acquire", "clock", "token", "tell", "fair_queue", "fair_expiry")
	fairReleaseScript = loadScript("fair_release", "clock", "tell", "fair_queue", "fair_expiry")
)

// Several locks at once.
var (
	multiAcquireScript = loadScript("multi_acquire", "clock")
	multiReleaseScript = loadScript("multi_release", "clock", "demoted", "channel", "tell", "fair_queue", "fair_wake")
	raiseScript        = loadScript("raise")
)

// batchScript runs several of the scripts that it carries, which are functions in it, and has shorter ways for many of one kind.
var (
	carried     = map[*backend.Script]any{acquireScript: "acquire", releaseScript: "release", handOverScript: "hand_over"}
	batchScript = newScript("batch", readScripts("clock", "token", "demoted", "channel", "tell"), "local operations, together = {}, {}\n",
		function("operations.acquire", "KEYS, ARGV", readScripts("acquire")),
		function("operations.release", "KEYS, ARGV", readScripts("entry"), wakeFair, readScripts("release")),
		function("operations.hand_over", "KEYS, ARGV", handOver()),
		function("together.acquire", columns, readScripts("acquire_all")),
		function("together.release", columns, readScripts("release_all")),
		readScripts("batch"))
)

// columns are what batch.lua says of where the keys and arguments stand.
const columns = "count, firstKey, keyStep, firstArg, argStep"

// wakeFair wakes the next in the queue of a FairMutex of the lock's name, where the owner's entry says that there is one. A release that needn't
// has nothing more to do for it.
var wakeFair = "if found[1] and queued == 126 then\n" + readScripts("fair_queue", "fair_wake", "fair_marked") + "end\n"

// function makes a function of a script.
func function(name, parameters string, source ...string) string {
	return name + " = function(" + parameters + ")\n" + strings.Join(source, "") + "end\n"
}

// handOver hands over where no other process waits, for which it may need what others share, and releases what can't be handed over.
func handOver(shared ...string) string {
	return readScripts("entry", "near") + "if near then\n" + readScripts(shared...) + readScripts("hand_over") + "end\n" + wakeFair + readScripts("release")
}

// loadScript returns the script of a file, after what it shares with others, if anything.
func loadScript(name string, shared ...string) *backend.Script {
	return newScript(name, readScripts(shared...), readScripts(name))
}

// newScript returns the script of some texts, one after the other.
func newScript(name string, texts ...string) *backend.Script {
	return backend.NewScript(name, strings.Join(texts, ""))
}

func readScripts(names ...string) (source string) {
	for _, name := range names {
		text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // the file is part of the program
		}
		source += string(text)
	}
	return source
}
