package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/telemetry"
)

// parents is a hook that records the span in whose context each script is sent, as redisotel's would.
type parents struct {
	redistest.Hook
	mu   sync.Mutex
	seen []trace.SpanContext
}

func (h *parents) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.note(ctx, cmd)
		return next(ctx, cmd)
	}
}

func (h *parents) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.note(ctx, cmds...)
		return next(ctx, cmds)
	}
}

func (h *parents) note(ctx context.Context, cmds ...redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cmd := range cmds {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.seen = append(h.seen, trace.SpanContextFromContext(ctx))
		}
	}
}

// taken are those of the scripts since it was last called.
func (h *parents) taken() []trace.SpanContext {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = nil
	return seen
}

// A single call is sent below its own span, by its caller and by a worker. A batch is sent below the span of its first call.
func TestCommandsAreBelowTheSpansOfTheirCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		spans := tracetest.NewInMemoryExporter()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		hook := &parents{}
		rdb := r.srv.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		rdb.AddHook(hook)
		r.c = openFor(t, rdb, WithTracerProvider(tracer))
		below := func(what telemetry.Span, name string) {
			t.Helper()
			var own trace.SpanContext
			for _, s := range spans.GetSpans() {
				named := slices.Contains(s.Attributes, telemetry.KeyName.String(name))
				if named && strings.HasPrefix(s.Name, what.Name) {
					own = s.SpanContext
				}
			}
			got := hook.taken()
			if !own.IsValid() || len(got) == 0 {
				t.Fatalf("%s of %s: span %s, %d scripts", what.Name, name, own.SpanID(), len(got))
			}
			for _, sc := range got {
				if sc.SpanID() != own.SpanID() || sc.TraceID() != own.TraceID() {
					t.Errorf("a script of the %s of %s is below span %s, not %s", what.Name, name, sc.SpanID(), own.SpanID())
				}
			}
		}

		alone := func(lk Locker, name string) {
			t.Helper()
			l, err := lk.TryLock(t.Context())
			below(telemetry.SpanAcquire, name)
			r.release(outcome{l, err})
			below(telemetry.SpanRelease, name)
		}
		alone(r.c.Mutex("job:worker"), "job:worker") // it isn't known how quick Redis is
		alone(r.c.FairMutex("job:fair"), "job:fair")
		tries := 0
		r.eventually(func() bool { // on a busy machine it takes some calls until one is quick
			mayInline := r.c.dispatcher.MaySendInline(t.Context(), r.c.dispatcher.Node("job"), DefaultLease)
			name := fmt.Sprint("job:caller-", tries)
			tries++
			alone(r.c.Mutex(name), name)
			return mayInline
		})

		names := []string{"job:x", "job:y", "job:z"}
		all := r.holdTryLock(t.Context(), names...)
		r.resume()
		var leases []outcome
		for _, ch := range all {
			leases = append(leases, <-ch)
		}
		below(telemetry.SpanAcquire, names[0])
		r.hold()
		var released sync.WaitGroup
		for _, o := range leases {
			released.Add(1)
			r.start(func() {
				defer released.Done()
				r.release(o)
			})
		}
		r.resume()
		released.Wait()
		below(telemetry.SpanRelease, names[0])
	})
}
