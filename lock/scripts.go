package lock

import (
	"embed"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// The scripts have no shebang line: with one, a Redis that is full refuses even renewals.
//
//go:embed scripts/*.lua
var scriptFiles embed.FS

var (
	acquireScript  = loadScript("acquire", "clock", "token")
	renewScript    = loadScript("renew", "clock", "demoted")
	releaseScript  = loadScript("release")
	handOverScript = loadScript("hand_over", "clock", "token")
	forceScript    = loadScript("force")
	inspectScript  = loadScript("inspect", "clock")

	countScript            = loadScript("count")
	semaphoreAcquireScript = loadScript("semaphore_acquire", "clock")
	semaphoreUndoScript    = loadScript("semaphore_undo", "clock")
	semaphoreAddScript     = loadScript("semaphore_add", "clock")
	semaphoreSetScript     = loadScript("semaphore_set", "clock")
	permitAcquireScript    = loadScript("permit_acquire", "clock", "token")
	permitReleaseScript    = loadScript("permit_release", "clock")
	latchSetScript         = loadScript("latch_set", "clock")
	latchCountDownScript   = loadScript("latch_count_down", "clock")
	latchWaitScript        = loadScript("latch_wait", "clock")

	fairAcquireScript = loadScript("fair_acquire", "clock", "token")
	fairReleaseScript = loadScript("fair_release", "clock")
	fairForceScript   = loadScript("fair_force")
)

// Several locks at once.
var (
	multiAcquireScript = loadScript("multi_acquire", "clock")
	multiReleaseScript = loadScript("multi_release", "clock", "demoted")
	raiseScript        = loadScript("raise")
)

// batchScript runs several of the scripts that it carries, which are functions in it.
var (
	carried     = map[*backend.Script]any{acquireScript: "acquire", releaseScript: "release", handOverScript: "hand_over"}
	batchScript = loadBatch([]string{"clock", "token", "demoted"}, "acquire", "release", "hand_over")
)

func loadBatch(shared []string, operations ...string) *backend.Script {
	source := readScripts(shared) + "local operations = {}\n"
	for _, name := range operations {
		source += "operations." + name + " = function(KEYS, ARGV)\n" + readScript(name) + "end\n"
	}
	return newScript("batch", source)
}

// loadScript returns the script of a file, after what it shares with others, if anything.
func loadScript(name string, shared ...string) *backend.Script {
	return newScript(name, readScripts(shared))
}

// newScript returns the script of a file, after what goes before it.
func newScript(name, before string) *backend.Script {
	return backend.NewScript(name, before+readScript(name))
}

func readScripts(names []string) (source string) {
	for _, name := range names {
		source += readScript(name)
	}
	return source
}

func readScript(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err) // the file is part of the program
	}
	if name == "hand_over" { // or else it is a release
		return string(text) + readScript("release")
	}
	return string(text)
}
