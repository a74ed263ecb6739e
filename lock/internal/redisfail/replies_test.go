package redisfail

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/telemetry"
)

// What the texts below mean. They are those of Redis 6.2, 7.0, 8.0 and 8.x, Redict 7.3 and Valkey 8.0, 8.1 and 9, as they reached a client.
var (
	retried = func(kind telemetry.ErrorType) Failure { return Failure{Kind: kind, Retry: true} }
	final   = func(kind telemetry.ErrorType) Failure { return Failure{Kind: kind} }
	away    = Failure{Kind: telemetry.ErrorClusterdown, Retry: true, Keys: KeysMoved}
	apart   = Failure{Kind: telemetry.ErrorClusterdown, Keys: KeysCrossSlot}

	undeclared = Failure{Kind: telemetry.ErrorOther, Keys: KeysUndeclared}
)

type replyText struct {
	text string
	want Failure
}

// replyTexts are all refusals that a script call can meet.
var replyTexts = []replyText{
	// A primary that takes no writes for a while.
	{"NOREPLICAS Not enough good replicas to write.", retried(telemetry.ErrorReadonly)},
	{"NOREPLICAS Not enough good replicas to write. script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", retried(telemetry.ErrorReadonly)},
	{"NOREPLICAS Not enough good replicas to write. script: on @user_script:1.", retried(telemetry.ErrorReadonly)},
	{"ERR Error running script (call to f_0c3fb311b229ef82e9f7b580efecec9809a488ea): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas to write. ", retried(telemetry.ErrorReadonly)},
	{"@user_script: 1: -NOREPLICAS Not enough good replicas to write.", retried(telemetry.ErrorReadonly)},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.", retried(telemetry.ErrorReadonly)},
	{"@user_script: 1: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.", retried(telemetry.ErrorReadonly)},
	{"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. Writable scripts are blocked. Use 'no-writes' flag for read only scripts.", retried(telemetry.ErrorReadonly)},
	{"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Valkey logs for details about the RDB error.", retried(telemetry.ErrorReadonly)},
	{"MISCONF Redis is configured to persist data to AOF, but it's currently unable to persist to disk. Writable scripts are blocked. Use 'no-writes' flag for read only scripts. AOF error: No space left on device", retried(telemetry.ErrorReadonly)},
	{"MISCONF Errors writing to the AOF file: No space left on device", retried(telemetry.ErrorReadonly)},
	{"@user_script: 1: -MISCONF Errors writing to the AOF file: No space left on device", retried(telemetry.ErrorReadonly)},

	// A replica, or a primary that becomes one.
	{"READONLY You can't write against a read only replica.", retried(telemetry.ErrorReadonly)},
	{"READONLY You can't write against a read only replica. script: on @user_script:1.", retried(telemetry.ErrorReadonly)},
	{"READONLY Can not run script with write flag on readonly replica", retried(telemetry.ErrorReadonly)},
	{"ERR Error running script (call to f_0c3fb311b229ef82e9f7b580efecec9809a488ea): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica. ", retried(telemetry.ErrorReadonly)},
	{"REDIRECT 127.0.0.1:6379", retried(telemetry.ErrorReadonly)},
	{"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", Failure{Kind: telemetry.ErrorReadonly, Retry: true, Unclear: true}}, // of WAIT: the script has run
	{"UNBLOCKED client unblocked via CLIENT UNBLOCK", Failure{Kind: telemetry.ErrorReadonly, Retry: true, Unclear: true}},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", retried(telemetry.ErrorLoading)},
	{"MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set on the script.", retried(telemetry.ErrorLoading)},
	{"ERR Can not execute the command on a stale replica script: on @user_script:1.", retried(telemetry.ErrorLoading)},

	// A server that starts, or is busy, or has too many clients.
	{"LOADING Redis is loading the dataset in memory", retried(telemetry.ErrorLoading)},
	{"LOADING Valkey is loading the dataset in memory", retried(telemetry.ErrorLoading)},
	{"LOADING", retried(telemetry.ErrorLoading)}, // a module's
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", retried(telemetry.ErrorBusy)},
	{"BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.", retried(telemetry.ErrorBusy)},
	{"BUSY Valkey is busy running a module command.", retried(telemetry.ErrorBusy)},
	{"BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", retried(telemetry.ErrorBusy)},
	{"ERR Error running script (call to f_0c3fb311b229ef82e9f7b580efecec9809a488ea): @user_script:1: Script killed by user with SCRIPT KILL... ", retried(telemetry.ErrorBusy)}, // only one that wrote nothing can be
	{"ERR Script killed by user with SCRIPT KILL... script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", retried(telemetry.ErrorBusy)},
	{"ERR The client ID you want redirect to does not exist", retried(telemetry.ErrorNetwork)}, // of CLIENT TRACKING
	{"ERR Can't execute 'evalsha': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", retried(telemetry.ErrorPool)},
	{"ERR Can't execute 'eval': only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / QUIT are allowed in this context", retried(telemetry.ErrorPool)},
	{"ERR max number of clients reached", retried(telemetry.ErrorPool)},
	{"ERR max number of clients + cluster connections reached", retried(telemetry.ErrorPool)},
	{"NOSCRIPT No matching script. Please use EVAL.", retried(telemetry.ErrorNoscript)},
	{"NOSCRIPT No matching script.", retried(telemetry.ErrorNoscript)},

	// A cluster that has yet to settle.
	{"MOVED 3999 127.0.0.1:6381", away},
	{"ASK 3999 127.0.0.1:6381", away},
	{"TRYAGAIN Multiple keys request during rehashing of slot", Failure{Kind: telemetry.ErrorClusterdown, Retry: true, Keys: KeysSplit}},
	{"CLUSTERDOWN The cluster is down", retried(telemetry.ErrorClusterdown)},
	{"CLUSTERDOWN The cluster is down and only accepts read commands", retried(telemetry.ErrorClusterdown)},
	{"CLUSTERDOWN Hash slot not served", retried(telemetry.ErrorClusterdown)},
	{"ERR Script attempted to execute a command while the cluster is down script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", retried(telemetry.ErrorClusterdown)},
	{"ERR Script attempted to execute a write command while the cluster is down and readonly", retried(telemetry.ErrorClusterdown)},
	{"@user_script: 1: Lua script attempted to execute a command while the cluster is down", retried(telemetry.ErrorClusterdown)},
	{"ERR Can not execute a command 'hmget' while the cluster is down script: on @user_script:1.", retried(telemetry.ErrorClusterdown)},
	{"ERR Can not execute a write command 'del' while the cluster is down and readonly", retried(telemetry.ErrorClusterdown)},
	{"ERR Script attempted to access a non local key in a cluster node script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", away},
	{"@user_script: 1: Lua script attempted to access a non local key in a cluster node", away},
	{"ERR Attempted to access a non local key in a cluster node", away},
	{"ERR Unable to execute command 'hexists' in script because undeclared keys were accessed during rehashing of the slot", away},

	// What stays as it is until somebody changes it.
	{"CROSSSLOT Keys in request don't hash to the same slot", apart},
	{"ERR Script attempted to access keys that do not hash to the same slot", apart},
	{"ERR Command 'hmget' in script attempted to access keys that don't hash to the same slot", apart},
	{"ERR script tried accessing undeclared key", undeclared},
	{"@user_script: 1: script tried accessing undeclared key", undeclared},
	{"OOM command not allowed when used memory > 'maxmemory'.", final(telemetry.ErrorOOM)},
	{"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'", final(telemetry.ErrorOOM)},
	{"@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", final(telemetry.ErrorOOM)},
	{"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", final(telemetry.ErrorACL)},
	{"NOPERM this user has no permissions to run the 'get' command", final(telemetry.ErrorACL)},
	{"NOPERM User app has no permissions to run the 'get' command", final(telemetry.ErrorACL)},
	{"NOPERM this user has no permissions to access one of the keys used as arguments", final(telemetry.ErrorACL)},
	{"NOPERM No permissions to access a key", final(telemetry.ErrorACL)},
	{"ERR ACL failure in script: User app has no permissions to run the 'set' command script: on @user_script:1.", final(telemetry.ErrorACL)},
	{"ERR ACL failure in script: No permissions to access a key", final(telemetry.ErrorACL)},
	{"ERR ACL failure in script: No permissions to access a channel", final(telemetry.ErrorACL)},
	{"ERR The user executing the script can't run this command or subcommand", final(telemetry.ErrorACL)},
	{"@user_script: 1: The user executing the script can't run this command or subcommand", final(telemetry.ErrorACL)},
	{"@user_script: 1: The user executing the script can't publish to the channel mentioned in the command", final(telemetry.ErrorACL)},
	{"@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments", final(telemetry.ErrorACL)},
	{"ERR The user executing the script can't publish to the channel mentioned in the command", final(telemetry.ErrorACL)},
	{"NOAUTH Authentication required.", final(telemetry.ErrorACL)},
	{"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used", final(telemetry.ErrorACL)},
	{"WRONGPASS invalid username-password pair or user is disabled.", final(telemetry.ErrorACL)},
	{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", final(telemetry.ErrorACL)},
	{"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.", final(telemetry.ErrorACL)},
	{"NOPROTO unsupported protocol version", final(telemetry.ErrorOther)},
	{"EXECABORT Transaction discarded because of previous errors.", final(telemetry.ErrorOther)},
	{"WRONGTYPE Operation against a key holding the wrong kind of value", final(telemetry.ErrorOther)},
	{"@user_script: 1: -WRONGTYPE Operation against a key holding the wrong kind of value", final(telemetry.ErrorOther)},
	{"ERR unknown command 'EVALSHA', with args beginning with: 'b3f1' '2' 'BUSY' ", final(telemetry.ErrorOther)},
	{"ERR unknown command `evalsha`, with args beginning with: `LOADING`, ", final(telemetry.ErrorOther)},
	{"ERR Unknown Redis command called from script script: 1674cfdbf16873d9ffa8ba05a3f956f4babf3d2f, on @user_script:1.", final(telemetry.ErrorOther)},
	{"@user_script: 1: Unknown Redis command called from Lua script", final(telemetry.ErrorOther)},
	{"ERR Unknown command called from script script: on @user_script:1.", final(telemetry.ErrorOther)},
	{"ERR This Redis command is not allowed from script", final(telemetry.ErrorOther)},
	{"@user_script: 1: Write commands not allowed after non deterministic commands. Call redis.replicate_commands() at the start of your script in order to switch to single commands replication mode.", final(telemetry.ErrorOther)},
	{"ERR Write commands are not allowed from read-only scripts.", final(telemetry.ErrorOther)},
	{"ERR value is not an integer or out of range", final(telemetry.ErrorOther)},
	{"ERR the number of permits would be out of range", final(telemetry.ErrorOther)},
	{"ERR This instance has cluster support disabled", final(telemetry.ErrorOther)},
	{"BUSYKEY Target key name already exists.", final(telemetry.ErrorOther)},
	{"NOTBUSY No scripts in execution right now.", final(telemetry.ErrorOther)},
	{"SOMETHING that no server says today", final(telemetry.ErrorOther)},
}

// Every error reply of Redis, Redict and Valkey is classified, in each form in which it comes.
func TestClassify_Replies(t *testing.T) {
	t.Parallel()
	for _, row := range replyTexts {
		for form, err := range map[string]error{
			"alone":    ReplyError(row.text),
			"wrapped":  errors.Join(errors.New("WAIT"), ReplyError(row.text)),
			"of a cmd": replyOfCmd(row.text),
		} {
			if got := Classify(err); got != row.want {
				t.Errorf("%s, %q: %+v, want %+v", form, row.text, got, row.want)
			}
			if want := row.want.Retry && !row.want.Unclear; IsTemporaryRefusal(err) != want {
				t.Errorf("%s, %q: IsTemporaryRefusal is %v", form, row.text, !want)
			}
		}
	}
}

// replyOfCmd is an error reply as go-redis returns it.
func replyOfCmd(text string) error {
	cmd := redis.NewCmd(context.Background())
	cmd.SetErr(ReplyError(text))
	return cmd.Err()
}

// A predicate finds its reply in each form of it, also behind another reply, and takes no other for it.
func TestReplyPredicates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		is    func(error) bool
		texts string // which of replyTexts, as a regular expression
	}{
		"IsNoScript":          {IsNoScript, `^NOSCRIPT`},
		"IsForbidden":         {IsForbidden, `^NOPERM`},
		"IsForbiddenInScript": {IsForbiddenInScript, `^ERR ACL failure|The user executing the script can't`},
		"IsWrongType":         {IsWrongType, `WRONGTYPE`},
		"IsNotInteger":        {IsNotInteger, `not an integer`},
		"IsOutOfRange":        {IsOutOfRange, `number of permits would be out of range`},
		"IsUnauthenticated":   {IsUnauthenticated, `^NOAUTH|^WRONGPASS`},
		"IsNotCluster":        {IsNotCluster, `cluster support disabled`},
	} {
		texts, found := regexp.MustCompile(test.texts), 0
		for _, row := range replyTexts {
			want := texts.MatchString(row.text)
			if want {
				found++
			}
			for _, err := range []error{
				ReplyError(row.text), fmt.Errorf("at a node: %w", replyOfCmd(row.text)), errors.Join(ReplyError("LOADING"), ReplyError(row.text)),
			} {
				if got := test.is(err); got != want {
					t.Errorf("%s(%q) is %v", name, err, got)
				}
			}
			if test.is(errors.New(row.text)) {
				t.Errorf("%s takes something for a reply that isn't one, with the text %q", name, row.text)
			}
		}
		if found == 0 || test.is(nil) {
			t.Errorf("%s: of nil %v; of %d texts", name, test.is(nil), found)
		}
	}
}

func TestRedirection(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		addr       string
		asking, ok bool
	}{
		"MOVED 3999 127.0.0.1:6381":       {"127.0.0.1:6381", false, true},
		"ASK 3999 127.0.0.1:6381":         {"127.0.0.1:6381", true, true},
		"MOVED 3999":                      {},
		"REDIRECT 127.0.0.1:6379":         {},
		"CLUSTERDOWN The cluster is down": {},
		"CLUSTERDOWN Slot unserved":       {},
	} {
		if addr, asking, ok := Redirection(ReplyError(text)); addr != want.addr || asking != want.asking || ok != want.ok {
			t.Errorf("Redirection(%q) = %q, %v, %v", text, addr, asking, ok)
		}
	}
}

// varying is what differs between texts that mean the same: which script, where, who and whom, and how Redis 6.2 wraps it.
var varying = regexp.MustCompile(`^(ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:\d+: )?(@user_script: \d+: )?-?|` +
	`[\s.]*( script: ([0-9a-f]{40}, )?on @user_script:\d+\.)?\s*$|\d+ 127\.0\.0\.1:\d+|['\x60][a-zA-Z]+['\x60]|with args beginning with: .*|Redis|Valkey|Redict`)

func alike(text string) string { return varying.ReplaceAllString(text, "") }
