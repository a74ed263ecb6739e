package lock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// If a script returns an error, it has changed nothing that lasts. Each script that the kinds run is also run on a copy
// of the data, once for each of its commands, for a user that may not use that command.
func TestRefusedScriptsChangeNothing(t *testing.T) {
	t.Parallel()
	for kind, calls := range aclKinds {
		switch kind {
		case "WithReplicas", "WithLossNotifications", aclCluster: // they have no scripts of their own
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			servers := []*redistest.Server{redistest.Start(t)}
			for kind == "Quorum" && len(servers) < 3 {
				servers = append(servers, redistest.Start(t))
			}
			u := newACLUser(t, "app", servers, []string{"~*", "&*", "+@all"})
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			u.ctx, u.lease = ctx, 30*time.Second
			u.change = func(o *redis.UniversalOptions) { o.ReadTimeout = patience }
			stage := newTrials(t)
			u.hook = func(i int) redis.Hook { return &tried{stage: stage, of: servers[i].Client(t)} }
			if err := calls(u); err != nil {
				t.Error(err)
			}
			runs := stage.end()
			if len(runs) < 2 {
				t.Errorf("tried: %v", runs)
			}
			t.Logf("tried: %v", runs)
		})
	}
}

// trials is where scripts are tried.
type trials struct {
	t          *testing.T
	srv        *redistest.Server
	admin, app *redis.Client
	bySHA      map[string]string // names of scripts
	known      map[string]*redis.CommandInfo

	turn    sync.Mutex // of srv
	running sync.WaitGroup

	mu    sync.Mutex
	runs  map[string]int // of scripts
	ended bool           // a call that was left may still be on its way
}

const trialsOfEach = 4 // calls of a script that are tried: one is like the other

func newTrials(t *testing.T) *trials {
	s := &trials{t: t, srv: redistest.Start(t, redistest.WithUser("app", "on", ">"+appPassword)), bySHA: make(map[string]string), runs: make(map[string]int)}
	s.admin = s.srv.Client(t)
	s.known = s.admin.Command(t.Context()).Val()
	s.app = s.srv.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", appPassword })
	for name, script := range lock.Scripts {
		s.bySHA[script.SHA], s.bySHA[script.Source] = name, name
	}
	return s
}

// tried is a hook of a client by which each script is tried before it is run.
type tried struct {
	redistest.Hook
	stage *trials
	of    *redis.Client // of its server
}

func (h *tried) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.stage.try(h.of, cmd.Args())
		}
		return next(ctx, cmd)
	}
}

var commandOfScript = regexp.MustCompile(`'([a-z]{3,})'`)

// end waits for the trials, after which there are no more. It returns how often each script was run.
func (s *trials) end() map[string]int {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.running.Wait()
	return s.runs
}

// wanted reports whether to try a script that is about to run. Then there will be a trial.
func (s *trials) wanted(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.runs[name]++
	if s.runs[name] > trialsOfEach {
		return false
	}
	s.running.Add(1)
	return true
}

// try has a script tried, in the state in which it is about to run. The call doesn't wait for that: its lease and its patience go on.
func (s *trials) try(of *redis.Client, args []any) {
	name := s.bySHA[args[1].(string)]
	if !s.wanted(name) {
		return
	}
	ctx := context.Background()
	world, err := copyOf(ctx, of)
	channels, err2 := listenersOf(ctx, of)
	if err := errors.Join(err, err2); err != nil {
		s.t.Errorf("%s: the copy: %v", name, err)
		s.running.Done()
		return
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if b, ok := arg.([]byte); ok {
			args[i] = slices.Clone(b) // of a batch, which is used again
		}
	}
	// If an acquire is refused that runs for the second time for its owner, it also takes away what the first has taken.
	// That happens when a client is too slow to trust a message of a grant, and asks.
	again := strings.HasSuffix(name, "acquire") && slices.ContainsFunc(args[4:], func(arg any) bool {
		return of.HExists(ctx, fmt.Sprint(args[3]), fmt.Sprint(arg)).Val()
	})
	cleansUp := name == "fair_acquire" && of.ZScore(ctx, "redisson_lock_timeout:{app:a}", somebodyElse).Val() == 1
	go func() {
		defer s.running.Done()
		if !cleansUp && !again { // the dead leave the queue, whoever asks
			s.run(ctx, name, args, world, channels)
		}
	}()
}

// run runs a script once for each command that it has.
func (s *trials) run(ctx context.Context, name string, args []any, world dump, channels map[string]int64) {
	s.turn.Lock()
	defer s.turn.Unlock()
	source := lock.Scripts[name].Source
	listeners, err := s.listen(ctx, channels)
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	if err != nil {
		s.t.Errorf("%s: the copy: %v", name, err)
		return
	}
	commands := []string{"publish"} // in ARGV
	for _, m := range commandOfScript.FindAllStringSubmatch(source, -1) {
		if s.known[m[1]] != nil {
			commands = append(commands, m[1])
		}
	}
	slices.Sort(commands)
	var before []string
	for _, command := range slices.Compact(commands) {
		if err := s.prepare(ctx, world, "allkeys", "allchannels", "+@all", "-"+command); err != nil {
			s.t.Errorf("%s: the copy: %v", name, err)
			return
		}
		if before == nil {
			if before, err = stateOf(ctx, s.admin); err != nil {
				s.t.Error(err)
			}
		}
		reply, refused := s.app.Do(ctx, append([]any{"eval", source}, args[2:]...)...).Result()
		after, err := stateOf(ctx, s.admin)
		if err != nil {
			s.t.Error(err)
		}
		spent := func(line string) bool { // a receipt that nobody asks for any more
			return strings.Contains(line, ":lockdog_receipt:") && (len(args) < 5 || !strings.HasPrefix(line, fmt.Sprint(args[4], ":")))
		}
		before, after = slices.DeleteFunc(before, spent), slices.DeleteFunc(after, spent)
		if (refused != nil || allRefused(name, reply)) && !slices.Equal(before, after) {
			s.t.Errorf("%s without %s: %v, %v; before\n%s\nafter\n%s\nargs %q", name, command, reply, refused, strings.Join(before, "\n"), strings.Join(after, "\n"), args[2:])
		}
	}
}

// allRefused reports whether all answers of a script for several locks are the texts of errors.
func allRefused(name string, reply any) bool {
	list, _ := reply.([]any)
	switch {
	case name == "multi_release" && len(list) > 1:
		return !slices.ContainsFunc(list[1:], func(v any) bool { _, text := v.(string); return !text })
	case name == "batch":
		for i := 1; i < len(list); i += 2 {
			if _, text := list[i].(string); !text {
				return false
			}
		}
		return len(list) > 0
	}
	return false
}

// listenersOf counts who listens to which channel.
func listenersOf(ctx context.Context, rdb *redis.Client) (map[string]int64, error) {
	channels, err := rdb.PubSubChannels(ctx, "*").Result()
	if err != nil || len(channels) == 0 {
		return nil, err
	}
	return rdb.PubSubNumSub(ctx, channels...).Result()
}

// listen subscribes to as many.
func (s *trials) listen(ctx context.Context, channels map[string]int64) (listeners []*redis.PubSub, err error) {
	for channel, n := range channels {
		for range n {
			l := s.admin.Subscribe(ctx, channel)
			_, failed := l.Receive(ctx)
			listeners, err = append(listeners, l), errors.Join(err, failed)
		}
	}
	return listeners, err
}

// dump is a server's data: of each key its name, what DUMP says of it, and for how long it is kept, ms.
type dump [][]any

func copyOf(ctx context.Context, rdb *redis.Client) (dump, error) {
	return rows(rdb.Eval(ctx, `
		local all = {}
		for i, key in ipairs(redis.call('keys', '*')) do
			all[i] = {key, redis.call('dump', key), redis.call('pttl', key)}
		end
		return all`, nil))
}

func rows(reply *redis.Cmd) (all [][]any, err error) {
	list, err := reply.Slice()
	for _, row := range list {
		all = append(all, row.([]any))
	}
	return all, err
}

// prepare has the stage hold a copy, and its user may do what the rules say.
func (s *trials) prepare(ctx context.Context, world dump, rules ...string) error {
	_, err := s.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.FlushAll(ctx)
		for _, row := range world {
			left := time.Duration(row[2].(int64)) * time.Millisecond
			if left > 0 {
				left += time.Hour // nothing ends while it is looked at
			}
			p.Restore(ctx, row[0].(string), max(left, 0), row[1].(string))
		}
		p.ACLSetUser(ctx, "app", rules...)
		return nil
	})
	return err
}

// stateOf describes a server's data as text. For an expiry it only says whether there is one. Two kinds of keys are
// left out: token counters, because they only rise, whichever script sets them; and the wait graph, because it is
// written anew every second or two.
func stateOf(ctx context.Context, rdb *redis.Client) (state []string, err error) {
	all, err := rows(rdb.Eval(ctx, `
		local read = {
			string = {'get'}, hash = {'hgetall'}, list = {'lrange', 0, -1}, zset = {'zrange', 0, -1, 'withscores'},
		}
		local all = {}
		for i, key in ipairs(redis.call('keys', '*')) do
			local kind = redis.call('type', key).ok
			all[i] = {key, kind, redis.call('pttl', key) > 0 and 1 or 0, redis.call(read[kind][1], key, unpack(read[kind], 2))}
		end
		return all`, nil))
	ignored := []string{"lockdog:fence:", "redisson_lock_token:", "lockdog:waits:", "lockdog:waiting"}
	for _, row := range all {
		key, value := row[0].(string), row[3]
		if slices.ContainsFunc(ignored, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
			continue
		}
		if row[1] == "hash" { // its fields have no order
			pairs := slices.Collect(slices.Chunk(value.([]any), 2))
			slices.SortFunc(pairs, func(a, b []any) int { return strings.Compare(fmt.Sprint(a...), fmt.Sprint(b...)) })
			value = pairs
		}
		state = append(state, fmt.Sprintf("%s: %v, expires: %v", key, value, row[2]))
	}
	slices.Sort(state)
	return state, err
}
