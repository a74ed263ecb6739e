package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// The options that a lock can have, and then those that only a client can have, each made of a number and a text.
var (
	lockOptions = []func(n int, text string) LockOption{
		func(n int, _ string) LockOption { return WithLease(time.Duration(n)) },
		func(n int, _ string) LockOption { return WithFixedLease(time.Duration(n)) },
		func(n int, _ string) LockOption { return WithWait(time.Duration(n)) },
		func(int, string) LockOption { return WithLifetime(nil) }, //nolint:staticcheck // that is what a program may get wrong
		func(int, string) LockOption { return WithLifetime(context.Background()) },
		func(int, string) LockOption { return WithReentrancy() },
		func(_ int, text string) LockOption { return WithGroup(text) },
		func(n int, _ string) LockOption { return WithMaxHold(time.Duration(n)) },
		func(n int, _ string) LockOption { return WithHeartbeat(time.Duration(n)) },
		func(n int, _ string) LockOption { return WithHoldWarning(time.Duration(n)) },
		func(n int, _ string) LockOption { return WithRenewalSpans(RenewalSpans(n)) },
		func(int, string) LockOption { return WithoutHolderLinks() },
		func(n int, text string) LockOption { return WithReplicas(n, time.Duration(len(text))*time.Millisecond) },
		func(n int, _ string) LockOption { return WithReplicas(1, time.Duration(n)) },
		func(int, string) LockOption { return WithRedissonTokens() },
	}
	clientOptions = []func(n int, text string) Option{
		func(int, string) Option { return WithTracerProvider(nil) },
		func(int, string) Option { return WithMeterProvider(nil) },
		func(int, string) Option { return WithLogger(nil) },
		func(_ int, text string) Option { return WithKeyPrefix(text) },
		func(_ int, text string) Option { return WithClientID(text) },
		func(n int, _ string) Option { return WithRenewalBatch(n) },
		func(int, string) Option { return WithRenewalClient(nil) },
		func(int, string) Option { return WithRenewalClient((*redis.Client)(nil)) },
	}
)

// someOptions makes options out of bytes: each a byte for which, eight for its number, and text up to the next zero byte.
func someOptions(data []byte) (opts []Option, own []LockOption) {
	for len(data) >= 9 {
		which := int(data[0]) % (len(lockOptions) + len(clientOptions) + 1)
		n := int(binary.BigEndian.Uint64(data[1:9]))
		rest := data[9:]
		text, _, _ := strings.Cut(string(rest), "\x00")
		data = rest[min(len(text)+1, len(rest)):]
		switch of := which - len(lockOptions); {
		case of < 0:
			o := lockOptions[which](n, text)
			opts, own = append(opts, o), append(own, o)
		case of < len(clientOptions):
			opts = append(opts, clientOptions[of](n, text))
		default:
			opts, own = append(opts, nil), append(own, nil)
		}
	}
	return opts, own
}

// FuzzOptions: whatever options New and the kinds of locks are given, there is an error that matches ErrInvalid and is no
// longer than a line or two, or all is as the documentation allows. Nothing panics, and nothing is sent.
func FuzzOptions(f *testing.F) {
	for _, s := range []string{
		"", "\x00\x00\x00\x00\x00\x05\xf5\xe1\x00", "\x06\x00\x00\x00\x00\x00\x00\x00\x00group\x00\x12\x00\x00\x00\x00\x00\x00\x00\x00{a}:\x00",
		"\x00\x00\x00\x00\x06\xfc\x23\xac\x00\x00\x07\x00\x00\x00\x02\x54\x0b\xe4\x00\x00\x08\x00\x00\x00\x01\x54\x0b\xe4\x00",
		"\x01\x7f\xff\xff\xff\xff\xff\xff\xff", "\x14\x00\x00\x00\x00\x00\x00\x10\x01", "\x17\x00\x00\x00\x00\x00\x00\x00\x00", "\x16\x00\x00\x00\x00\x00\x00\x00\x00",
		"\x0d\x00\x00\x00\x00\x05\xf5\xe1\x00", "\x0c\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		f.Add([]byte(s), "orders:42")
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	f.Cleanup(func() { _ = rdb.Close() })
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		opts, own := someOptions(data)
		judge := func(what string, err error) {
			t.Helper()
			if err != nil && (!errors.Is(err, ErrInvalid) || len(err.Error()) > 8<<10) {
				t.Errorf("%s: %.300v", what, err)
			}
		}
		c, err := New(rdb, opts...)
		judge("New", err)
		if (c == nil) != (err != nil) {
			t.Fatalf("New: %v, %v", c, err)
		}
		if c != nil {
			c.sane(t, &c.cfg.lock)
			if p := c.cfg.prefix; len(p) > maxTextBytes || checkBraces("", p) != nil {
				t.Errorf("prefix %q", p)
			}
			c.Close(t.Context()) //nolint:errcheck // it holds nothing
		}

		plain, err := New(rdb, WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close(t.Context()) //nolint:errcheck // it holds nothing
		ended, cancel := context.WithCancel(t.Context())
		cancel() // nothing is sent
		for _, lk := range []*lock{
			&plain.Mutex(name, own...).lock, &plain.FairMutex(name, own...).lock, &plain.Semaphore(name, own...).lock,
			&plain.UnleasedSemaphore(name, own...).lock, &plain.Latch(name, own...).lock,
		} {
			judge(lk.name, lk.err)
			if lk.err == nil {
				plain.sane(t, lk.cfg)
			}
			if _, err := lk.acquire(ended, true); err == nil || !errors.Is(err, ErrInvalid) && !errors.Is(err, context.Canceled) {
				t.Errorf("with a ctx that has ended: %v", err)
			}
		}
	})
}

// sane checks a configuration that was accepted.
func (c *Client) sane(t *testing.T, cfg *lockConfig) {
	t.Helper()
	within := func(d time.Duration) bool { return d == 0 || d >= cfg.interval() && !cfg.fixed }
	switch {
	case cfg.lease < MinLease, cfg.lease > MaxLease, cfg.interval() < 0, cfg.margin() <= 0, cfg.margin() >= cfg.lease,
		!within(cfg.maxHold), !within(cfg.heartbeat), cfg.holdWarning < 0, cfg.replicas < 0, cfg.replicaWait >= cfg.lease,
		cfg.spans > RenewalSpansOff, len(cfg.group) > maxTextBytes:
		t.Errorf("accepted: %+v", *cfg)
	}
}
