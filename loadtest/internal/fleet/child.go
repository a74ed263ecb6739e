package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

const childEnv = "LOCKDOG_LOADTEST_CHILD"

// IsChild reports whether this process was started by Fleet.Start without a command.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Worker does the work of a child.
type Worker[R any] interface {
	// Do handles a request. Its ctx ends when the parent has closed the child's input, or is gone.
	Do(ctx context.Context, request Request) (R, error)
	// Close ends the work, even if it was interrupted.
	Close() error
}

// Serve runs a child, and returns its exit code. open makes the worker from the configuration.
func Serve[C, R any](in io.Reader, out io.Writer, open func(cfg C) (Worker[R], error)) int {
	// No logs: losses and errors that are caused on purpose are reported as figures.
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))

	if err := serve(json.NewDecoder(in), json.NewEncoder(out), open); err != nil {
		fmt.Fprintln(os.Stderr, "child process:", err)
		return 1
	}
	return 0
}

func serve[C, R any](in *json.Decoder, out *json.Encoder, open func(cfg C) (Worker[R], error)) (err error) {
	var cfg C
	switch err := in.Decode(&cfg); {
	case errors.Is(err, io.EOF):
		return nil // the parent has ended already
	case err != nil:
		return fmt.Errorf("config: %w", err)
	}
	w, err := open(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	requests := make(chan Request, 8)
	var broken error // set before requests is closed
	go func() {
		defer close(requests)
		defer cancel()
		for broken == nil {
			var request Request
			if broken = in.Decode(&request); broken == nil {
				requests <- request
			}
		}
	}()
	for request := range requests {
		var r reply[R]
		if r.Result, err = w.Do(ctx, request); err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	if !errors.Is(broken, io.EOF) {
		return fmt.Errorf("request: %w", broken)
	}
	return nil
}

// CPUTime returns the user and system time that this process has used.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // impossible with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
