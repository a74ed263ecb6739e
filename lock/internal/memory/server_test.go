package memory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

// mem runs scripts in a memory that is compared with nothing.
type mem struct {
	*memory.Server
	t *testing.T
}

func newMem(t *testing.T) mem { return mem{memory.New(), t} }

// run runs a script that must answer want, worded as word does.
func (m mem) run(want, source string, args ...any) {
	m.t.Helper()
	if got := word(eval(m.Backend(), source, []string{"k"}, args...)); got != want {
		m.t.Errorf("%s\nanswers %s\nshould be %s", source, got, want)
	}
}

// renew runs a script as a renewal.
func (m mem) renew(source string) (any, error) {
	call := backend.Call{Script: backend.NewScript("renew", source), Renew: true, Keys: []string{"k"}}
	return m.Backend().Eval(m.t.Context(), call)
}

func TestTimeAlwaysRises(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMem(t)
		start, last := time.Now().UnixMicro(), int64(0)
		for range 100 {
			reply, err := eval(m.Backend(), `local t = redis.call('time'); local n = t[1] * 1000000 + t[2]
				t = redis.call('time'); return {n, t[1] * 1000000 + t[2]}`, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range reply.([]any) {
				if n.(int64) <= last || n.(int64) < start || n.(int64) > start+1000 {
					t.Fatalf("%d after %d, it is %d", n, last, start)
				}
				last = n.(int64)
			}
		}
	})
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMem(t)
		m.run(`{"OK", 1}`, `return {redis.call('set', 'k', 'v', 'px', 1500), redis.call('pexpire', 'k', 1000, 'lt')}`)
		at := time.Now().Add(2 * time.Second).UnixMilli()
		m.run(`{1, 1, 2000}`, `redis.call('hset', 'h', 'f', 'v'); return {redis.call('exists', 'k'), redis.call('pexpireat', 'h', ARGV[1]), redis.call('pttl', 'h')}`, at)
		time.Sleep(999 * time.Millisecond)
		m.run(`{1, 1001}`, `return {redis.call('pttl', 'k'), redis.call('pttl', 'h')}`)
		time.Sleep(time.Millisecond)
		m.run(`{<nil>}`, `return {redis.call('get', 'k')}`)
		if keys := fmt.Sprint(m.Keys()); keys != "[h]" {
			t.Errorf("there are %s", keys)
		}
	})
}

// What a script finds at its start is there until its end.
func TestNothingExpiresInAScript(t *testing.T) {
	t.Parallel()
	newMem(t).run(`{1, 1, 0}`, `redis.call('set', 'k', 'v', 'px', 1)
		local t = redis.call('time'); local start = t[1] * 1000000 + t[2]
		repeat t = redis.call('time') until t[1] * 1000000 + t[2] > start + 3000
		return {redis.call('exists', 'k'), redis.call('pexpire', 'k', 0), redis.call('exists', 'k')}`)
}

func TestKeepIsFrozen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMem(t)
		if !m.Keep("k", "java", time.Minute) || m.Keep("k", "other", time.Minute) || m.Holder("k") != "java" {
			t.Fatalf("held by %q", m.Holder("k"))
		}
		for range 3 {
			m.run(`{60000, 1, 0, 60000, {"java", "1", "@lockdog", ""}}`,
				`return {redis.call('pttl', 'k'), redis.call('pexpire', 'k', 0), redis.call('persist', 'k'), redis.call('pttl', 'k'), redis.call('hgetall', 'k')}`)
			time.Sleep(time.Hour)
		}
		m.run(`{0, 1, 0, 1}`, `return {redis.call('pexpire', 'k', 5, 'nx'), redis.call('pexpire', 'k', 70000, 'gt'), redis.call('pexpire', 'k', 5, 'gt'), redis.call('del', 'k')}`)
		m.run(`{-2, 0}`, `return {redis.call('pttl', 'k'), redis.call('exists', 'k')}`)
	})
}

func TestCutOffFailsRenewalsOfOneHold(t *testing.T) {
	t.Parallel()
	const source = `
		redis.call('hset', 'k', 'a', 1, 'b', 1); redis.call('zadd', 'z', 1, 'a', 2, 'b')
		return {redis.pcall('hexists', 'k', 'a'), redis.pcall('hexists', 'k', 'b'), redis.pcall('hexists', 'other', 'a'), redis.pcall('zscore', 'z', 'a'), redis.pcall('zscore', 'z', 'b')}`
	m := newMem(t)
	m.CutOff("k", "a")
	m.CutOff("z", "a")
	m.run(`{1, 1, 0, "1", "2"}`, source) // no renewal
	const failed = "an error: ERR locktest: this lease can't be renewed any more"
	reply, err := m.renew(strings.Replace(source, "return", "redis.call('hset', 'other', 'b', 1); return", 1))
	if err == nil {
		t.Fatalf("a renewal that names the hold answers %v", reply)
	}
	m.Del()
	m.run(`{1, 1, 0, "1", "2"}`, source)
	asks := source[strings.Index(source, "return"):]
	if got, want := word(m.renew(asks)), `{`+failed+`, 1, 0, `+failed+`, "2"}`; got != want {
		t.Errorf("the renewal answers %s\nshould be %s", got, want)
	}
	m.run(`{1, 1, 0, "1", "2"}`, asks)
	m.Del() // and so the renewal must see that it is lost
	if got := word(m.renew(asks)); got != "{0, 0, 0, <nil>, <nil>}" {
		t.Errorf("without the keys it answers %s", got)
	}
}

func TestFailRenewals(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	sick := errors.New("sick")
	m.FailRenewals(sick)
	if reply, err := m.renew("return 1"); !errors.Is(err, sick) {
		t.Errorf("%v, %v", reply, err)
	}
	m.run("1", "return 1")
	m.FailRenewals(nil)
	if reply, err := m.renew("return 1"); err != nil || reply != int64(1) {
		t.Errorf("%v, %v", reply, err)
	}
}

// What a script changes is gone when it ends.
func TestScriptsShareNothing(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	m.run(`{"k", "x", 2}`, `KEYS[2], ARGV[2] = 'y', 'z'; return {KEYS[1], ARGV[1], #KEYS}`, "x")
	m.run(`{"k", 1, 0}`, `return {KEYS[1], #KEYS, #ARGV}`)
	for _, source := range []string{`_G.x = 1`, `x = 1`, `string.upper = nil`, `math.x = 1`, `redis.call = nil`, `pcall = error`, `tostring = nil`} {
		if got := word(eval(m.Backend(), source, nil)); !strings.HasPrefix(got, "answer: ERR user_script:1: Attempt to modify a readonly table") {
			t.Errorf("%s answers %s", source, got)
		}
	}
	for _, name := range []string{"x", "arg", "load", "loadstring", "getmetatable", "setmetatable", "rawset", "getfenv", "setfenv", "require", "coroutine", "dofile", "print", "collectgarbage"} {
		if got := word(eval(m.Backend(), "return "+name, nil)); !strings.Contains(got, "nonexistent global variable '"+name+"'") {
			t.Errorf("%s answers %s", name, got)
		}
	}
	// One that fails deep inside leaves a sound interpreter behind.
	for range 5 {
		if got := word(eval(m.Backend(), `local function f(n) return 1 + f(n + 1) end return f(1)`, nil)); !strings.HasPrefix(got, "answer: ERR ") {
			t.Errorf("endless recursion answers %s", got)
		}
		if n := m.LuaStack(); n != 0 {
			t.Errorf("%d values were left on the interpreter's stack", n)
		}
		m.run(`{"8", "A", 3}`, `local n = 0; for i = 1, 3 do n = n + 1 end; return {tostring(8), string.upper('a'), n}`)
	}
	if got := word(eval(m.Backend(), "return 1 +", nil)); !strings.HasPrefix(got, "answer: ERR Error compiling script (new function): ") {
		t.Errorf("a script that isn't Lua answers %s", got)
	}
}

// A program that uses what isn't here is to learn that it is this server that lacks it.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	m := newMem(t)
	for _, line := range []string{
		"set k v exat 1", "set k v ex 1", "zadd k incr 1 m", "zrange k 0 -1 rev", "zrange k 0 1 byscore", "lpos k x rank 1",
	} {
		words := strings.Fields(line)
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = w
		}
		got := word(eval(m.Backend(), `return redis.pcall(unpack(ARGV))`, nil, args...))
		if !strings.HasPrefix(got, "answer: ERR locktest: the memory server's "+strings.ToUpper(words[0])+" doesn't know ") {
			t.Errorf("%s answers %s", line, got)
		}
	}
	if got := word(eval(m.Backend(), `return tonumber('z', 36)`, nil)); !strings.Contains(got, "locktest: the memory server's tonumber") {
		t.Errorf("tonumber with a base answers %s", got)
	}
}

// Subscribers are counted, and hear what is published on plain channels in the order that a script says it.
func TestPublishReachesSubscribers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMem(t)
		sub, err := m.Backend().Subscribe(t.Context(), backend.Endpoint{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Close() }()
		if err := sub.Subscribe(t.Context(), "c", "d"); err != nil {
			t.Fatal(err)
		}
		m.run(`{{"c", 1, "e", 0}, {"c", 0}, 1, 0, 1, 0}`, `return {redis.call('pubsub', 'numsub', 'c', 'e'), redis.call('pubsub', 'shardnumsub', 'c'),
			redis.call('publish', 'c', 1), redis.call('publish', 'e', 'x'), redis.call('publish', 'd', '2'), redis.call('spublish', 'c', 'x')}`)
		var heard []string
		for {
			ev, err := sub.Receive(t.Context(), time.Second)
			if errors.Is(err, backend.ErrIdle) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == backend.Message {
				heard = append(heard, ev.Channel+ev.Payload)
			}
		}
		if got := fmt.Sprint(heard); got != "[c1 d2]" {
			t.Errorf("heard %s", got)
		}
	})
}

// Any number of servers run the same scripts at once, and any number of clients one server: the race detector looks on.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	shared := memory.New()
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			own := memory.New()
			for i := range 200 {
				for _, s := range []*memory.Server{shared, own} {
					reply, err := eval(s.Backend(), fmt.Sprintf(`-- %d
						local function f(x) return x .. '!' end return {f('a' .. 1), redis.call('incr', KEYS[1])}`, i%10), []string{"n"})
					if err != nil || reply.([]any)[0] != "a1!" {
						t.Errorf("%v, %v", reply, err)
					}
				}
			}
		})
	}
	running.Wait()
	reply, err := eval(shared.Backend(), `return redis.call('get', 'n')`, nil)
	if err != nil || reply != "1600" {
		t.Errorf("counted %v, %v", reply, err)
	}
}

// An answer of nil is redis.Nil, as in go-redis.
func TestNilIsRedisNil(t *testing.T) {
	t.Parallel()
	reply, err := eval(memory.New().Backend(), `return nil`, nil)
	if reply != nil || !errors.Is(err, redis.Nil) {
		t.Errorf("%v, %v", reply, err)
	}
	results := memory.New().Backend().EvalEach(context.Background(), []backend.Call{{Script: backend.NewScript("x", "return 1")}, {Script: backend.NewScript("y", "return x")}})
	if results[0].Reply != int64(1) || results[0].Err != nil || results[1].Err == nil {
		t.Errorf("%+v", results)
	}
}
