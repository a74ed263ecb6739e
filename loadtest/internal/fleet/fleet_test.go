package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

// echo is a reply that is what was said, as children made of cat give.
type echo struct {
	Text  string `json:"text"`
	Error string `json:"error"`
}

func (e echo) Failure() string { return e.Error }

func TestMain(m *testing.M) {
	if fleet.IsChild() {
		os.Exit(fleet.Serve(os.Stdin, os.Stdout, func(ctx context.Context, lines <-chan []byte, out *json.Encoder) error {
			for line := range lines {
				if err := out.Encode(echo{Text: string(line)}); err != nil {
					return err
				}
			}
			return ctx.Err() // it has ended
		}))
	}
	goleak.VerifyTestMain(m)
}

func TestFleet_Ask(t *testing.T) {
	t.Parallel()
	var f fleet.Fleet[echo]
	for i := range 3 {
		if err := f.Start([]string{"cat"}, echo{Text: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := f.Replies(t.Context())
	if err != nil || len(first) != 3 || first[2].Text != "2" {
		t.Errorf("%v, %v", first, err)
	}
	all, err := f.Ask(t.Context(), echo{Text: strings.Repeat("x", 1<<20)})
	if err != nil || len(all) != 3 || len(all[1].Text) != 1<<20 {
		t.Errorf("%d replies, %v", len(all), err)
	}
	if _, err := f.Ask(t.Context(), echo{Error: "too late"}); err == nil || strings.Count(err.Error(), "too late") != 3 {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no patience"))
	if _, err := f.Replies(ctx); err == nil || !strings.Contains(err.Error(), "no patience") {
		t.Error(err)
	}
	for range 20 { // more than anybody reads
		_, _ = f.Ask(ctx, echo{})
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// What a child complains about is in the error of its end; so is what it prints that is no reply.
func TestFleet_Ended(t *testing.T) {
	t.Parallel()
	var f fleet.Fleet[echo]
	if err := f.Start([]string{"sh", "-c", "read line; echo no reply; echo oops >&2; exit 3"}, echo{}); err != nil {
		t.Fatal(err)
	}
	_, err := f.Replies(t.Context())
	for _, want := range []string{"it ended", "exit status 3", "no reply", "oops"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err := f.Close(); err == nil {
		t.Error("no error")
	}
	if err := f.Start([]string{"/no/such/program"}, echo{}); err == nil {
		t.Error("no error")
	}
}

// This program itself is a child where no command is given. The ctx of its work ends with its input.
func TestFleet_Self(t *testing.T) {
	t.Parallel()
	var f fleet.Fleet[echo]
	if err := f.Start(nil, "hello"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if replies, err := f.Replies(ctx); err != nil || replies[0].Text != `"hello"` {
		t.Errorf("%v, %v", replies, err)
	}
	if err := f.Close(); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Error(err)
	}
}
