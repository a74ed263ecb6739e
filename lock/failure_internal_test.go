package lock

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// verdicts on what servers answer. Their words are those of Redis 6.2, 7.0, 8.0 and 8.x, Redict 7.3 and Valkey 8.0, 8.1 and 9, as they
// reached a client.
var (
	passesAs = func(kind telemetry.ErrorType) failure { return failure{kind: kind, retry: true} }
	staysAs  = func(kind telemetry.ErrorType) failure { return failure{kind: kind} }
	away     = failure{kind: telemetry.ErrorClusterdown, retry: true, keys: keysAway}
	apart    = failure{kind: telemetry.ErrorClusterdown, keys: keysApart}
)

type refusalText struct {
	text string
	want failure
}

// refusalTexts are all refusals that a script call can meet.
var refusalTexts = []refusalText{
	// A primary that takes no writes for a while.
	{"NOREPLICAS Not enough good replicas to write.", passesAs(telemetry.ErrorReadonly)},
	{"NOREPLICAS Not enough good replicas to write. script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", passesAs(telemetry.ErrorReadonly)},
	{"NOREPLICAS Not enough good replicas to write. script: on @user_script:1.", passesAs(telemetry.ErrorReadonly)},
	{"ERR Error running script (call to f_0c3fb311b229ef82e9f7b580efecec9809a488ea): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas to write. ", passesAs(telemetry.ErrorReadonly)},
	{"@user_script: 1: -NOREPLICAS Not enough good replicas to write.", passesAs(telemetry.ErrorReadonly)},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.", passesAs(telemetry.ErrorReadonly)},
	{"@user_script: 1: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.", passesAs(telemetry.ErrorReadonly)},
	{"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. Writable scripts are blocked. Use 'no-writes' flag for read only scripts.", passesAs(telemetry.ErrorReadonly)},
	{"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Valkey logs for details about the RDB error.", passesAs(telemetry.ErrorReadonly)},
	{"MISCONF Redis is configured to persist data to AOF, but it's currently unable to persist to disk. Writable scripts are blocked. Use 'no-writes' flag for read only scripts. AOF error: No space left on device", passesAs(telemetry.ErrorReadonly)},
	{"MISCONF Errors writing to the AOF file: No space left on device", passesAs(telemetry.ErrorReadonly)},
	{"@user_script: 1: -MISCONF Errors writing to the AOF file: No space left on device", passesAs(telemetry.ErrorReadonly)},

	// A replica, or a primary that becomes one.
	{"READONLY You can't write against a read only replica.", passesAs(telemetry.ErrorReadonly)},
	{"READONLY You can't write against a read only replica. script: on @user_script:1.", passesAs(telemetry.ErrorReadonly)},
	{"READONLY Can not run script with write flag on readonly replica", passesAs(telemetry.ErrorReadonly)},
	{"ERR Error running script (call to f_0c3fb311b229ef82e9f7b580efecec9809a488ea): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica. ", passesAs(telemetry.ErrorReadonly)},
	{"REDIRECT 127.0.0.1:6379", passesAs(telemetry.ErrorReadonly)},
	{"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", failure{kind: telemetry.ErrorReadonly, retry: true, unclear: true}}, // of WAIT: the script has run
	{"UNBLOCKED client unblocked via CLIENT UNBLOCK", failure{kind: telemetry.ErrorReadonly, retry: true, unclear: true}},
	{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", passesAs(telemetry.ErrorLoading)},
	{"MASTERDOWN Link with MASTER is down, replica-serve-stale-data is set to 'no' and 'allow-stale' flag is not set on the script.", passesAs(telemetry.ErrorLoading)},
	{"ERR Can not execute the command on a stale replica script: on @user_script:1.", passesAs(telemetry.ErrorLoading)},

	// A server that starts, or is busy, or has too many clients.
	{"LOADING Redis is loading the dataset in memory", passesAs(telemetry.ErrorLoading)},
	{"LOADING Valkey is loading the dataset in memory", passesAs(telemetry.ErrorLoading)},
	{"LOADING", passesAs(telemetry.ErrorLoading)}, // a module's
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", passesAs(telemetry.ErrorBusy)},
	{"BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.", passesAs(telemetry.ErrorBusy)},
	{"BUSY Valkey is busy running a module command.", passesAs(telemetry.ErrorBusy)},
	{"BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", passesAs(telemetry.ErrorBusy)},
	{"ERR Error running script (call to f_0c3fb311b229ef82e9f7b580efecec9809a488ea): @user_script:1: Script killed by user with SCRIPT KILL... ", passesAs(telemetry.ErrorBusy)}, // only one that wrote nothing can be
	{"ERR Script killed by user with SCRIPT KILL... script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", passesAs(telemetry.ErrorBusy)},
	{"ERR The client ID you want redirect to does not exist", passesAs(telemetry.ErrorNetwork)}, // of CLIENT TRACKING
	{"ERR max number of clients reached", passesAs(telemetry.ErrorPool)},
	{"ERR max number of clients + cluster connections reached", passesAs(telemetry.ErrorPool)},
	{"NOSCRIPT No matching script. Please use EVAL.", passesAs(telemetry.ErrorNoscript)},
	{"NOSCRIPT No matching script.", passesAs(telemetry.ErrorNoscript)},

	// A cluster that has yet to settle.
	{"MOVED 3999 127.0.0.1:6381", away},
	{"ASK 3999 127.0.0.1:6381", away},
	{"TRYAGAIN Multiple keys request during rehashing of slot", failure{kind: telemetry.ErrorClusterdown, retry: true, keys: keysSeparated}},
	{"CLUSTERDOWN The cluster is down", passesAs(telemetry.ErrorClusterdown)},
	{"CLUSTERDOWN The cluster is down and only accepts read commands", passesAs(telemetry.ErrorClusterdown)},
	{"CLUSTERDOWN Hash slot not served", passesAs(telemetry.ErrorClusterdown)},
	{"ERR Script attempted to execute a command while the cluster is down script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", passesAs(telemetry.ErrorClusterdown)},
	{"ERR Script attempted to execute a write command while the cluster is down and readonly", passesAs(telemetry.ErrorClusterdown)},
	{"@user_script: 1: Lua script attempted to execute a command while the cluster is down", passesAs(telemetry.ErrorClusterdown)},
	{"ERR Can not execute a command 'hmget' while the cluster is down script: on @user_script:1.", passesAs(telemetry.ErrorClusterdown)},
	{"ERR Can not execute a write command 'del' while the cluster is down and readonly", passesAs(telemetry.ErrorClusterdown)},
	{"ERR Script attempted to access a non local key in a cluster node script: 0c3fb311b229ef82e9f7b580efecec9809a488ea, on @user_script:1.", away},
	{"@user_script: 1: Lua script attempted to access a non local key in a cluster node", away},
	{"ERR Attempted to access a non local key in a cluster node", away},
	{"ERR Unable to execute command 'hexists' in script because undeclared keys were accessed during rehashing of the slot", away},

	// What stays as it is until somebody changes it.
	{"CROSSSLOT Keys in request don't hash to the same slot", apart},
	{"ERR Script attempted to access keys that do not hash to the same slot", apart},
	{"ERR Command 'hmget' in script attempted to access keys that don't hash to the same slot", apart},
	{"OOM command not allowed when used memory > 'maxmemory'.", staysAs(telemetry.ErrorOOM)},
	{"OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'", staysAs(telemetry.ErrorOOM)},
	{"@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", staysAs(telemetry.ErrorOOM)},
	{"NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", staysAs(telemetry.ErrorACL)},
	{"NOPERM this user has no permissions to run the 'get' command", staysAs(telemetry.ErrorACL)},
	{"NOPERM User app has no permissions to run the 'get' command", staysAs(telemetry.ErrorACL)},
	{"NOPERM this user has no permissions to access one of the keys used as arguments", staysAs(telemetry.ErrorACL)},
	{"NOPERM No permissions to access a key", staysAs(telemetry.ErrorACL)},
	{"ERR ACL failure in script: User app has no permissions to run the 'set' command script: on @user_script:1.", staysAs(telemetry.ErrorACL)},
	{"ERR ACL failure in script: No permissions to access a key", staysAs(telemetry.ErrorACL)},
	{"ERR ACL failure in script: No permissions to access a channel", staysAs(telemetry.ErrorACL)},
	{"ERR The user executing the script can't run this command or subcommand", staysAs(telemetry.ErrorACL)},
	{"@user_script: 1: The user executing the script can't run this command or subcommand", staysAs(telemetry.ErrorACL)},
	{"@user_script: 1: The user executing the script can't publish to the channel mentioned in the command", staysAs(telemetry.ErrorACL)},
	{"@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments", staysAs(telemetry.ErrorACL)},
	{"ERR The user executing the script can't publish to the channel mentioned in the command", staysAs(telemetry.ErrorACL)},
	{"NOAUTH Authentication required.", staysAs(telemetry.ErrorACL)},
	{"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used", staysAs(telemetry.ErrorACL)},
	{"WRONGPASS invalid username-password pair or user is disabled.", staysAs(telemetry.ErrorACL)},
	{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", staysAs(telemetry.ErrorACL)},
	{"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.", staysAs(telemetry.ErrorACL)},
	{"NOPROTO unsupported protocol version", staysAs(telemetry.ErrorOther)},
	{"EXECABORT Transaction discarded because of previous errors.", staysAs(telemetry.ErrorOther)},
	{"WRONGTYPE Operation against a key holding the wrong kind of value", staysAs(telemetry.ErrorOther)},
	{"@user_script: 1: -WRONGTYPE Operation against a key holding the wrong kind of value", staysAs(telemetry.ErrorOther)},
	{"ERR unknown command 'EVALSHA', with args beginning with: 'b3f1' '2' 'BUSY' ", staysAs(telemetry.ErrorOther)},
	{"ERR unknown command `evalsha`, with args beginning with: `LOADING`, ", staysAs(telemetry.ErrorOther)},
	{"ERR Unknown Redis command called from script script: 1674cfdbf16873d9ffa8ba05a3f956f4babf3d2f, on @user_script:1.", staysAs(telemetry.ErrorOther)},
	{"@user_script: 1: Unknown Redis command called from Lua script", staysAs(telemetry.ErrorOther)},
	{"ERR Unknown command called from script script: on @user_script:1.", staysAs(telemetry.ErrorOther)},
	{"ERR This Redis command is not allowed from script", staysAs(telemetry.ErrorOther)},
	{"@user_script: 1: Write commands not allowed after non deterministic commands. Call redis.replicate_commands() at the start of your script in order to switch to single commands replication mode.", staysAs(telemetry.ErrorOther)},
	{"ERR Write commands are not allowed from read-only scripts.", staysAs(telemetry.ErrorOther)},
	{"ERR value is not an integer or out of range", staysAs(telemetry.ErrorOther)},
	{"BUSYKEY Target key name already exists.", staysAs(telemetry.ErrorOther)},
	{"NOTBUSY No scripts in execution right now.", staysAs(telemetry.ErrorOther)},
	{"SOMETHING that no server says today", staysAs(telemetry.ErrorOther)},
}

// Each refusal that Redis, Redict or Valkey know is decided on, in every form in which it comes.
func TestEveryRefusalIsDecided(t *testing.T) {
	t.Parallel()
	for _, row := range refusalTexts {
		for form, err := range map[string]error{
			"alone":    script.Error(row.text),
			"wrapped":  errors.Join(errors.New("WAIT"), script.Error(row.text)),
			"of a cmd": redisError(row.text),
		} {
			got := classify(err)
			if got != row.want {
				t.Errorf("%s, %q: %+v, want %+v", form, row.text, got, row.want)
			}
			if want := row.want.retry && !row.want.unclear; passing(err) != want {
				t.Errorf("%s, %q: passing is %v", form, row.text, !want)
			}
		}
	}
	for _, err := range []error{errLeft, errLate, errBusyWorkers, redis.ErrPoolTimeout, redis.ErrClosed, errNoAnswer, errors.New("EOF"), &ReplicasError{}} {
		if passing(err) {
			t.Errorf("%v is no answer of a server", err)
		}
	}
}

// ScriptError is the error that a script answered as a text.
func ScriptError(text string) error { return script.Error(text) }

// Decided is what a refusal means, and whether refusalTexts has what the server said.
func Decided(err error) (kind telemetry.ErrorType, retry, known bool) {
	f, text := classify(err), alike(err.Error())
	return f.kind, f.retry, slices.ContainsFunc(refusalTexts, func(row refusalText) bool {
		return alike(row.text) == text && row.want == f
	})
}

// varying is what differs between texts that say the same: which script, where, who and whom, and how Redis 6.2 wraps it.
var varying = regexp.MustCompile(`^(ERR Error running script \(call to f_[0-9a-f]{40}\): @user_script:\d+: )?(@user_script: \d+: )?-?|` +
	`[\s.]*( script: ([0-9a-f]{40}, )?on @user_script:\d+\.)?\s*$|\d+ 127\.0\.0\.1:\d+|['\x60][a-zA-Z]+['\x60]|with args beginning with: .*|Redis|Valkey|Redict`)

func alike(text string) string { return varying.ReplaceAllString(text, "") }

// redisError is an error as go-redis makes it of an answer.
func redisError(text string) error {
	cmd := redis.NewCmd(context.Background())
	cmd.SetErr(script.Error(text))
	return cmd.Err()
}
