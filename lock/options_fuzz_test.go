package lock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// someOptions makes options out of bytes: each a byte for which, eight for its number, and text up to the next zero byte.
func someOptions(data []byte) (opts []Option, own []LockOption) {
	both := func(o LockOption) { opts, own = append(opts, o), append(own, o) }
	for len(data) >= 9 {
		which := data[0]
		n := 0
		for _, b := range data[1:9] {
			n = n<<8 | int(b)
		}
		rest, d := data[9:], time.Duration(n)
		text, _, _ := strings.Cut(string(rest), "\x00")
		data = rest[min(len(text)+1, len(rest)):]
		switch which % 24 {
		case 0:
			both(WithLease(d))
		case 1:
			both(WithFixedLease(d))
		case 2:
			both(WithWait(d))
		case 3:
			both(WithLifetime(nil)) //nolint:staticcheck // that is what a program may get wrong
		case 4:
			both(WithLifetime(context.Background()))
		case 5:
			both(WithReentrancy())
		case 6:
			both(WithGroup(text))
		case 7:
			both(WithMaxHold(d))
		case 8:
			both(WithHeartbeat(d))
		case 9:
			both(WithHoldWarning(d))
		case 10:
			both(WithRenewalSpans(RenewalSpans(n)))
		case 11:
			both(WithoutHolderLinks())
		case 12:
			both(WithReplicas(n, time.Duration(len(text))*time.Millisecond))
		case 13:
			both(WithReplicas(1, d))
		case 14:
			both(WithRedissonTokens())
		case 15:
			opts = append(opts, WithTracerProvider(nil))
		case 16:
			opts = append(opts, WithMeterProvider(nil))
		case 17:
			opts = append(opts, WithLogger(nil))
		case 18:
			opts = append(opts, WithKeyPrefix(text))
		case 19:
			opts = append(opts, WithClientID(text))
		case 20:
			opts = append(opts, WithRenewalBatch(n))
		case 21:
			opts = append(opts, WithRenewalClient(nil))
		case 22:
			opts = append(opts, WithRenewalClient((*redis.Client)(nil)))
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
