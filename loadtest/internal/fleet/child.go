package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

const childEnv = "LOCKDOG_LOADTEST_CHILD"

// IsChild reports whether this process was started by Fleet.Start.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Serve runs a child, up to its exit code. serve gets the lines of the input; its ctx ends with them, as the parent is gone then.
func Serve(in io.Reader, out io.Writer, serve func(ctx context.Context, lines <-chan []byte, out *json.Encoder) error) int {
	// Losses and errors that are made on purpose are reported as figures.
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := make(chan []byte, 8)
	go func() {
		defer close(lines)
		defer cancel()
		for sc := bufio.NewScanner(in); sc.Scan(); {
			lines <- bytes.Clone(sc.Bytes())
		}
	}()
	if err := serve(ctx, lines, json.NewEncoder(out)); err != nil {
		fmt.Fprintln(os.Stderr, "child process:", err)
		return 1
	}
	return 0
}

// CPUTime is what this process has used, in user and system mode.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // impossible with these arguments
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
