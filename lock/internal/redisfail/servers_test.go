package redisfail

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/telemetry"
)

// provoked is a refusal that the server under test is brought to.
type provoked struct {
	name  string
	setup []redistest.Option
	by    func(t *testing.T, srv *redistest.Server, says func(error))
	kind  telemetry.ErrorType
	retry bool
}

var provokedAlone = []provoked{
	{"a replica", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv)
		must(t, "REPLICAOF", rdb.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
		writes(rdb, says)
	}, telemetry.ErrorReadonly, true},
	{"a replica without its primary", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv)
		configure(t, rdb, "replica-serve-stale-data", "no")
		must(t, "REPLICAOF", rdb.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
		says(rdb.Get(t.Context(), "a").Err())
		says(rdb.Eval(t.Context(), "return redis.call('get', KEYS[1])", []string{"a"}).Err())
	}, telemetry.ErrorLoading, true},
	{"too few replicas", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv)
		configure(t, rdb, "min-replicas-to-write", "1")
		writes(rdb, says)
	}, telemetry.ErrorReadonly, true},
	{"a disk that can't be written to", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv)
		must(t, "mkdir", os.Mkdir(dumpOf(t, rdb), 0o700))
		configure(t, rdb, "save", "900 1")
		must(t, "BGSAVE", rdb.BgSave(t.Context()).Err())
		eventually(t, func() bool { return rdb.Set(t.Context(), "a", 1, 0).Err() != nil })
		writes(rdb, says)
	}, telemetry.ErrorReadonly, true},
	{"no memory", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv)
		configure(t, rdb, "maxmemory", "1")
		writes(rdb, says)
	}, telemetry.ErrorOOM, false},
	{"a server that loads its data", []redistest.Option{
		redistest.WithConfig("enable-debug-command", "yes"), redistest.WithConfig("key-load-delay", "100000"), // µs
		redistest.WithConfig("rdbcompression", "no"), redistest.WithConfig("loading-process-events-interval-bytes", "1024"),
	}, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb, reloading := bare(t, srv), bare(t, srv)
		for i := range 80 {
			must(t, "SET", rdb.Set(t.Context(), fmt.Sprint("filler:", i), strings.Repeat("x", 1024), 0).Err())
		}
		go reloading.Do(context.Background(), "debug", "reload")
		eventually(t, func() bool { return rdb.Get(t.Context(), "a").Err() != redis.Nil }) //nolint:errorlint // it isn't wrapped
		says(rdb.Get(t.Context(), "a").Err())
		says(rdb.Eval(t.Context(), "return redis.call('get', KEYS[1])", []string{"a"}).Err())
	}, telemetry.ErrorLoading, true},
	{"a script that doesn't end", []redistest.Option{redistest.WithConfig("lua-time-limit", "10")}, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb, endless := bare(t, srv), bare(t, srv)
		ended := make(chan error, 1)
		go func() { ended <- endless.Eval(context.Background(), "while true do end", nil).Err() }()
		eventually(t, func() bool { return rdb.Ping(t.Context()).Err() != nil })
		writes(rdb, says)
		must(t, "SCRIPT KILL", rdb.ScriptKill(t.Context()).Err())
		says(<-ended)
	}, telemetry.ErrorBusy, true},
	{"an unknown script", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		says(bare(t, srv).EvalSha(t.Context(), strings.Repeat("0", 40), nil).Err())
	}, telemetry.ErrorNoscript, true},
	{"a key of another type", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv)
		must(t, "SET", rdb.Set(t.Context(), "a", 1, 0).Err())
		scripts(rdb, "'hget', KEYS[1], 'f'", says)
	}, telemetry.ErrorOther, false},
	{"an unknown command", nil, func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv)
		scripts(rdb, "'nosuch'", says)
		says(rdb.Do(t.Context(), "nosuch", "BUSY").Err())
	}, telemetry.ErrorOther, false},
	{"too many clients", []redistest.Option{redistest.WithConfig("maxclients", "4")}, func(t *testing.T, srv *redistest.Server, says func(error)) {
		// Not by go-redis, which mostly finds the connection closed before it reads why.
		connect := func(send string) (answer string, err error) {
			conn, err := net.Dial("tcp", srv.Addr())
			must(t, "dial", err)
			t.Cleanup(func() { _ = conn.Close() })
			must(t, "deadline", conn.SetReadDeadline(time.Now().Add(patience)))
			if _, err = conn.Write([]byte(send)); err == nil {
				answer, err = bufio.NewReader(conn).ReadString('\n')
			}
			return answer, err
		}
		for {
			if answer, err := connect("PING\r\n"); err != nil || answer != "+PONG\r\n" {
				break // there are as many as may be
			}
		}
		answer, err := connect("") // what was sent might get in the way of the answer
		must(t, "read why", err)
		says(ReplyError(strings.TrimSpace(strings.TrimPrefix(answer, "-"))))
	}, telemetry.ErrorPool, true},
	{"a forbidden command", mayAll("-set", "-get"), func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv, asApp)
		writes(rdb, says)
		says(rdb.Get(t.Context(), "a").Err())
	}, telemetry.ErrorACL, false},
	{"a forbidden key", mayAll("resetkeys", "~b"), func(t *testing.T, srv *redistest.Server, says func(error)) {
		rdb := bare(t, srv, asApp)
		writes(rdb, says)
		scripts(rdb, "'set', 'a', 1", says)
	}, telemetry.ErrorACL, false},
	{"a forbidden channel", mayAll("resetchannels"), func(t *testing.T, srv *redistest.Server, says func(error)) {
		scripts(bare(t, srv, asApp), "'publish', 'a', 1", says)
	}, telemetry.ErrorACL, false},
	{"no password", []redistest.Option{redistest.WithPassword("secret")}, func(t *testing.T, srv *redistest.Server, says func(error)) {
		for _, protocol := range []int{2, 3} {
			says(bare(t, srv, func(o *redis.Options) { o.Password, o.Protocol = "", protocol }).Ping(t.Context()).Err())
		}
	}, telemetry.ErrorACL, false},
	{"a wrong password", mayAll(), func(t *testing.T, srv *redistest.Server, says func(error)) {
		says(bare(t, srv, asApp, func(o *redis.Options) { o.Password = "other" }).Ping(t.Context()).Err())
	}, telemetry.ErrorACL, false},
}

// mayAll adds a user that may do everything, but for some rules.
func mayAll(but ...string) []redistest.Option {
	rules := append([]string{"on", ">" + appPassword, "~*", "&*", "+@all"}, but...)
	return []redistest.Option{redistest.WithUser("app", rules...)}
}

// bare is a client that makes each call once.
func bare(t *testing.T, srv *redistest.Server, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return srv.Client(t, append(change, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Minute })...)
}

func asApp(o *redis.Options) { o.Username, o.Password = "app", appPassword }

// scripts makes a call of a command from a script in each of the ways in which a client learns that it was refused: as what ended the
// script, as its answer, and as a text that it answers, as ours do.
func scripts(rdb redis.Scripter, command string, says func(error), keys ...string) {
	if len(keys) == 0 {
		keys = []string{"a"}
	}
	ctx := context.Background()
	says(rdb.Eval(ctx, "return redis.call("+command+")", keys).Err())
	says(rdb.Eval(ctx, "return redis.pcall("+command+")", keys).Err())
	text, err := rdb.Eval(ctx, "local r = redis.pcall("+command+") return {r.err or r.ok}", keys).StringSlice()
	switch {
	case err != nil:
		says(err)
	case len(text) == 1:
		says(ReplyError(text[0]))
	}
}

func writes(rdb redis.Scripter, says func(error)) { scripts(rdb, "'set', KEYS[1], 1", says) }

// What the server under test replies when it refuses is classified by a row of replyTexts.
func TestRefusalsOfServers(t *testing.T) {
	t.Parallel()
	for _, p := range provokedAlone {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.by(t, redistest.Start(t, p.setup...), func(err error) { t.Helper(); mustBeKnown(t, err, p.kind, p.retry) })
		})
	}
}

func mustBeKnown(t *testing.T, err error, kind telemetry.ErrorType, retry bool) {
	t.Helper()
	if err == nil || err.Error() == "OK" {
		t.Error("it was not refused")
		return
	}
	f, text := Classify(err), alike(err.Error())
	if f.Kind != kind || f.Retry != retry {
		t.Errorf("%q is of type %v, retried %v; want %v, %v", err, f.Kind, f.Retry, kind, retry)
	}
	if !slices.ContainsFunc(replyTexts, func(row replyText) bool { return alike(row.text) == text && row.want == f }) {
		t.Errorf("replyTexts doesn't have %q as it is classified", err)
	}
}

// So is what it replies as a node of a cluster.
func TestRefusalsOfClusters(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	ctx := t.Context()
	key := func(node *redistest.Server, n int) string { // the n-th that is there
		for i := 0; ; i++ {
			key := fmt.Sprint("{k", i, "}")
			if c.Owner(t, c.Slot(t, key)) == node {
				if n--; n < 0 {
					return key
				}
			}
		}
	}
	here := c.Nodes[0]
	rdb := bare(t, here)
	mine, mine2, foreign := key(here, 0), key(here, 1), key(c.Nodes[1], 0)
	passing := func(err error) { t.Helper(); mustBeKnown(t, err, telemetry.ErrorClusterdown, true) }

	t.Log("keys of several slots")
	lasting := func(err error) { t.Helper(); mustBeKnown(t, err, telemetry.ErrorClusterdown, false) }
	lasting(rdb.Eval(ctx, "return 1", []string{mine, mine2}).Err())
	scripts(rdb, "'mget', KEYS[1], '"+mine2+"'", func(err error) {
		if strings.Contains(err.Error(), "non local") { // all that Redis 7.0 says of a command whose keys aren't in one slot of its own
			passing(err)
		} else {
			lasting(err)
		}
	}, mine)
	t.Log("a key of another node")
	passing(rdb.Eval(ctx, "return 1", []string{foreign}).Err())
	scripts(rdb, "'set', '"+foreign+"', 1", passing, mine)

	t.Log("a slot that moves")
	tag := mine
	must(t, "SET", rdb.Set(ctx, tag+"here", 1, 0).Err())
	m := c.Migrate(t, c.Slot(t, tag), c.Nodes[1])
	passing(rdb.Eval(ctx, "return 1", []string{tag + "gone"}).Err())
	passing(rdb.Eval(ctx, "return 1", []string{tag + "here", tag + "gone"}).Err())
	scripts(rdb, "'get', '"+tag+"gone'", func(err error) {
		if err != nil { // Valkey serves it
			passing(err)
		}
	}, tag+"here")
	m.Finish(t)

	t.Log("a cluster that is down")
	c.Nodes[2].Kill(t)
	c.Notice(t)
	eventually(t, func() bool {
		info, err := rdb.ClusterInfo(ctx).Result()
		return err == nil && strings.Contains(info, "cluster_state:fail")
	})
	passing(rdb.Eval(ctx, "return 1", []string{mine2}).Err())
	for _, call := range []string{"call", "pcall"} {
		passing(rdb.Eval(ctx, "return redis."+call+"('set', '"+mine2+"', 1)", nil).Err())
	}
}

const (
	appPassword = "secret"
	patience    = time.Minute // for what must happen soon
)

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// eventually fails the test unless cond becomes true in time.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !cond(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not so within %v", patience)
		}
	}
}

func configure(t *testing.T, rdb *redis.Client, directive, value string) {
	t.Helper()
	must(t, "CONFIG SET", rdb.ConfigSet(t.Context(), directive, value).Err())
}

// dumpOf is where a server keeps its snapshot.
func dumpOf(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	where, err := rdb.ConfigGet(t.Context(), "d*").Result()
	if err != nil || where["dir"] == "" || where["dbfilename"] == "" {
		t.Fatalf("%v, %v", where, err)
	}
	return filepath.Join(where["dir"], where["dbfilename"])
}
