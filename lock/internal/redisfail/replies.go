package redisfail

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/telemetry"
)

// The words and phrases that functions of this package look for.
const (
	noScript   = "NOSCRIPT"
	noPerm     = "NOPERM"
	wrongType  = "WRONGTYPE"
	noAuth     = "NOAUTH"
	wrongPass  = "WRONGPASS"
	denied     = "DENIED"
	noPassword = "AUTH <password> called"
	notInteger = "not an integer"
	listening  = "allowed in this context" // "only (P|S)SUBSCRIBE / ... / RESET are ..."
	outOfRange = "would be out of range"   // of semaphore_add.lua
	noCluster  = "cluster support disabled"

	noPermInScript    = "ACL failure"
	noPermInScriptOld = "user executing the script can't" // before Redis 7.2
)

// words are the first words of error replies: all that Redis 6.2 to 8 and Valkey 8 and 9 use for a script call. A reply
// is to be retried if the server may stop sending it by itself: a failover ends, a replica catches up, the disk is
// writable again. OOM isn't: Redis has expired and evicted what it may before it replies OOM.
//
// Error replies are recognized by a word, because versions differ in how they wrap an error inside a script.
var words = []struct {
	word string
	Failure
}{
	{noScript, transient(telemetry.ErrorNoscript)},
	{"READONLY", transient(telemetry.ErrorReadonly)},
	{"REDIRECT", transient(telemetry.ErrorReadonly)}, // Valkey's READONLY, if it knows the primary
	{"NOREPLICAS", transient(telemetry.ErrorReadonly)},
	{"MISCONF", transient(telemetry.ErrorReadonly)},
	// The reply to WAIT when the primary becomes a replica: the script has run.
	{"UNBLOCKED", Failure{Kind: telemetry.ErrorReadonly, Retry: true, Unclear: true}},
	{"LOADING", transient(telemetry.ErrorLoading)},
	{"MASTERDOWN", transient(telemetry.ErrorLoading)},
	{"CLUSTERDOWN", transient(telemetry.ErrorClusterdown)},
	{"TRYAGAIN", Failure{Kind: telemetry.ErrorClusterdown, Retry: true, Keys: KeysSplit}},
	{"MOVED", Failure{Kind: telemetry.ErrorClusterdown, Retry: true, Keys: KeysMoved}},
	{"ASK", Failure{Kind: telemetry.ErrorClusterdown, Retry: true, Keys: KeysMoved}},
	{"BUSY", transient(telemetry.ErrorBusy)},
	{"CROSSSLOT", Failure{Kind: telemetry.ErrorClusterdown, Keys: KeysCrossSlot}},
	{"OOM", permanent(telemetry.ErrorOOM)},
	{noPerm, permanent(telemetry.ErrorACL)},
	{noAuth, permanent(telemetry.ErrorACL)},
	{wrongPass, permanent(telemetry.ErrorACL)},
	{denied, permanent(telemetry.ErrorACL)}, // protected mode
	{"NOPROTO", permanent(telemetry.ErrorOther)},
	{"EXECABORT", permanent(telemetry.ErrorOther)},
	{wrongType, permanent(telemetry.ErrorOther)},
}

// phrases are in error replies whose first word is only ERR.
var phrases = []struct {
	text string
	Failure
}{
	{"unknown command", permanent(telemetry.ErrorOther)}, // first, because it quotes the command
	{"max number of clients", transient(telemetry.ErrorPool)},
	{listening, transient(telemetry.ErrorPool)},                                // another connection will do
	{"you want redirect to does not exist", transient(telemetry.ErrorNetwork)}, // CLIENT TRACKING: the client has gone
	{"killed by user with SCRIPT KILL", transient(telemetry.ErrorBusy)},        // possible only before a script writes
	{"on a stale replica", transient(telemetry.ErrorLoading)},
	{"while the cluster is down", transient(telemetry.ErrorClusterdown)},
	{"non local key", Failure{Kind: telemetry.ErrorClusterdown, Retry: true, Keys: KeysMoved}},
	{"hash to the same slot", Failure{Kind: telemetry.ErrorClusterdown, Keys: KeysCrossSlot}},
	// During a migration.
	{"undeclared keys were accessed", Failure{Kind: telemetry.ErrorClusterdown, Retry: true, Keys: KeysMoved}},
	{"undeclared key", Failure{Kind: telemetry.ErrorOther, Keys: KeysUndeclared}}, // Dragonfly's
	{noPermInScript, permanent(telemetry.ErrorACL)},
	{noPermInScriptOld, permanent(telemetry.ErrorACL)},
	{noPassword, permanent(telemetry.ErrorACL)},
	{notInteger, permanent(telemetry.ErrorOther)},
	{outOfRange, permanent(telemetry.ErrorOther)},
	{noCluster, permanent(telemetry.ErrorOther)},
}

// readReply returns the word or phrase of an error reply, and what it means. A reply without any is permanent.
func readReply(text string) (found string, f Failure) {
	first, _, _ := strings.Cut(text, " ")
	for _, w := range words {
		if w.word == first {
			return w.word, w.Failure
		}
	}
	for _, p := range phrases {
		if strings.Contains(text, p.text) {
			return p.text, p.Failure
		}
	}
	for _, w := range words { // "ERR Error running script (call to ...): @user_script: 1: -READONLY ..." of Redis 6.2
		if hasWord(text, w.word) {
			return w.word, w.Failure
		}
	}
	return "", permanent(telemetry.ErrorOther)
}

// hasWord reports whether text contains a word in capitals that isn't part of a longer one.
func hasWord(text, word string) bool {
	capital := func(at int) bool { return at >= 0 && at < len(text) && 'A' <= text[at] && text[at] <= 'Z' }
	for from := 0; ; {
		at := strings.Index(text[from:], word)
		if at < 0 {
			return false
		}
		at += from
		from = at + len(word)
		if !capital(at-1) && !capital(from) {
			return true
		}
	}
}

// IsNoScript reports whether the server doesn't know the script yet. It ran nothing.
func IsNoScript(err error) bool { return replied(err, noScript) }

// IsForbidden reports whether the ACL of the connection's user forbids a command, or one of its keys or channels. For a
// script, that means EVALSHA and the KEYS. See also IsForbiddenInScript.
func IsForbidden(err error) bool { return replied(err, noPerm) }

// IsForbiddenInScript reports whether the ACL forbids a command in a script, or a key or channel of that command.
func IsForbiddenInScript(err error) bool {
	return replied(err, noPermInScript) || replied(err, noPermInScriptOld)
}

// IsUnauthenticated reports whether the server replied NOAUTH or WRONGPASS: it accepted a connection, but not its user.
// IsUnreached is false then.
func IsUnauthenticated(err error) bool { return replied(err, noAuth) || replied(err, wrongPass) }

// IsListening reports whether the call's connection was subscribed to a channel, and so refuses other commands.
func IsListening(err error) bool { return replied(err, listening) }

// IsNotCluster reports whether the server isn't a node of a cluster, and therefore refuses CLUSTER commands.
func IsNotCluster(err error) bool { return replied(err, noCluster) }

// Redirection returns the address to which a node of a cluster redirects a failed call. asking: the slot of the key is
// being migrated, so the call must follow ASKING there.
func Redirection(err error) (addr string, asking, ok bool) {
	words := strings.Fields(err.Error())
	if len(words) != 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return "", false, false
	}
	return words[2], words[0] == "ASK", true
}

// IsWrongType reports whether a key holds something else: a value of another type, or one that isn't lockdog's.
func IsWrongType(err error) bool { return replied(err, wrongType) }

// IsNotInteger reports whether a key holds a value that isn't a number.
func IsNotInteger(err error) bool { return replied(err, notInteger) }

// IsOutOfRange reports whether a semaphore's number of permits would become too large, or too far below zero.
func IsOutOfRange(err error) bool { return replied(err, outOfRange) }

// IsCrossSlot reports whether a server, or a proxy in front of it, accepts only calls whose keys are of one slot.
func IsCrossSlot(err error) bool { return err != nil && Classify(err).Keys == KeysCrossSlot }

// replied reports whether any error reply in the tree of err has a word or phrase. Of a RetriedError only the last try
// counts.
func replied(err error, want string) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree, where errors.As would stop at the first reply
	case nil:
		return false
	case redis.Error:
		found, _ := readReply(e.Error())
		return found == want
	case *RetriedError:
		return replied(e.Last, want)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return replied(err, want) })
	}
	return replied(errors.Unwrap(err), want)
}
