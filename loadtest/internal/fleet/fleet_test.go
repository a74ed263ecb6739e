package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

// echo is a child that says what it is, and what it was asked for.
type echo struct{ name string }

func (e echo) Do(ctx context.Context, request fleet.Request) (string, error) {
	switch request.Do {
	case "fail":
		return "", errors.New("as was asked")
	case "wait":
		<-ctx.Done()
	case "garbage":
		fmt.Println("no reply")
	}
	return e.name + request.Do, nil
}

func (e echo) Close() error {
	if e.name == "bad" {
		return errors.New("a bad end")
	}
	return nil
}

func TestMain(m *testing.M) {
	if fleet.IsChild() {
		os.Exit(fleet.Serve(os.Stdin, os.Stdout, func(name string) (fleet.Worker[string], error) {
			if name == "nobody" {
				return nil, errors.New("nobody is here")
			}
			return echo{name}, nil
		}))
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, names ...string) *fleet.Fleet[string] {
	t.Helper()
	var f fleet.Fleet[string]
	for _, name := range names {
		if err := f.Start(nil, name); err != nil {
			t.Fatal(err)
		}
	}
	return &f
}

func TestFleet_Ask(t *testing.T) {
	t.Parallel()
	f := start(t, "a", "b")
	all, err := f.Ask(t.Context(), fleet.Request{Do: strings.Repeat("x", 10_000)})
	if err != nil || len(all) != 2 || !strings.HasPrefix(all[0], "axx") || !strings.HasPrefix(all[1], "bxx") {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := f.Ask(t.Context(), fleet.Request{Do: "fail"}); err == nil || strings.Count(err.Error(), "as was asked") != 2 {
		t.Error(err)
	}
	if all, err := f.Ask(t.Context(), fleet.Request{Do: "garbage"}); err != nil || all[0] != "agarbage" {
		t.Errorf("%v, %v", all, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no patience"))
	for range 20 { // more than anybody reads
		_, _ = f.Ask(ctx, fleet.Request{}) // an answer, or no patience
	}
	// The ctx of their work ends with their input.
	_, _ = f.Ask(ctx, fleet.Request{Do: "wait"})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// What a child complains about is in the error of its end.
func TestFleet_Ended(t *testing.T) {
	t.Parallel()
	f := start(t, "nobody")
	_, err := f.Ask(t.Context(), fleet.Request{Do: "x"})
	for _, want := range []string{"exit status 1", "nobody is here"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err := f.Close(); err == nil {
		t.Error("no error")
	}
	if err := start(t, "bad").Close(); err == nil || !strings.Contains(err.Error(), "a bad end") {
		t.Error(err)
	}
	if err := f.Start([]string{"/no/such/program"}, ""); err == nil {
		t.Error("no error")
	}
	// A line that is no reply goes with what it complains about.
	var other fleet.Fleet[string]
	if err := other.Start([]string{"sh", "-c", "read line; echo no reply; echo oops >&2; exit 3"}, ""); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "oops") {
		t.Error(err)
	}
}
