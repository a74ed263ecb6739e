package redistest_test

import (
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestRules(t *testing.T) {
	t.Parallel()
	up := func(conn int, data string) redistest.Chunk {
		return redistest.Chunk{Conn: conn, Dir: redistest.Up, Data: []byte(data)}
	}
	down := func(conn int) redistest.Chunk { return redistest.Chunk{Conn: conn, Dir: redistest.Down} }
	rule := redistest.FirstOf(
		redistest.When(redistest.Up, redistest.Cut, redistest.Contains("EVALSHA"), redistest.Nth(2)),
		redistest.ReplyTo(redistest.Hold, redistest.Contains("get")),
		redistest.When(redistest.Down, redistest.Delay(time.Second)),
	)
	for i, step := range []struct {
		chunk redistest.Chunk
		want  redistest.Verdict
	}{
		{up(1, "ping"), redistest.Pass}, // does not count for Nth
		{up(1, "evalsha"), redistest.Pass},
		{up(2, "EvalSha"), redistest.Cut}, // counts over connections
		{up(3, "evalsha"), redistest.Pass},
		{up(4, "GET"), redistest.Pass},
		{down(5), redistest.Delay(time.Second)}, // another connection's reply
		{down(4), redistest.Hold},
		{down(4), redistest.Delay(time.Second)}, // only the first
	} {
		if got := rule(step.chunk); got != step.want {
			t.Errorf("step %d, %+v: %v, want %v", i, step.chunk, got, step.want)
		}
	}
}
