package agentlink

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

// conn is one session. A goroutine receives the replies.
type conn struct {
	net  net.Conn
	out  *bufio.Writer // of what the body of the HTTP request consists of
	body io.Writer     // writes chunks to out
	done chan struct{} // closed when the goroutine has ended

	clock time.Time // when the agent's clock was 0, or a little later: by how much the Hello was under way

	mu     sync.Mutex
	err    error                    // why it is closed; nil: it is open
	lastID uint64                   // of a request
	asked  map[uint64]chan<- result // the requests that have no reply yet
}

// result is a Reply, or why there is none.
type result struct {
	Reply
	err error
}

// start begins a session over c, for the owners with a secret. It calls ended when the connection has failed.
func start(ctx context.Context, c net.Conn, secret string, ended func(*conn)) (_ *conn, err error) {
	defer abortWith(ctx, c.SetDeadline)()
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	head := "POST " + Path + " HTTP/1.1\r\nHost: lockdog\r\nAuthorization: " + Scheme + secret +
		"\r\nContent-Type: application/jsonl\r\nTransfer-Encoding: chunked\r\n\r\n"
	if _, err := io.WriteString(c, head); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return nil, fmt.Errorf("%s: %.512s", resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, MaxLine)
	var hello Hello
	if err := readLine(lines, &hello); err != nil {
		return nil, err
	}
	s := &conn{
		net: c, out: bufio.NewWriter(c), done: make(chan struct{}), asked: map[uint64]chan<- result{},
		clock: time.Now().Add(-time.Duration(hello.Clock) * time.Millisecond),
	}
	s.body = httputil.NewChunkedWriter(s.out)
	go func() {
		defer close(s.done)
		s.receive(lines)
		ended(s)
	}()
	return s, nil
}

// abortWith calls setDeadline, so that reading or writing fails, when ctx ends. stop ends and undoes that.
func abortWith(ctx context.Context, setDeadline func(time.Time) error) (stop func()) {
	called := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		_ = setDeadline(time.Unix(1, 0))
		close(called)
	})
	return func() {
		if !undo() {
			<-called
			_ = setDeadline(time.Time{})
		}
	}
}

// readLine reads a line of JSON.
func readLine(lines *bufio.Scanner, v any) error {
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	return json.Unmarshal(lines.Bytes(), v)
}

// send sends one request that the agent must fulfil before ctx's deadline. Calls must not overlap.
func (c *conn) send(ctx context.Context, node string, leases []Lease) (<-chan result, error) {
	reply := make(chan result, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.lastID++
	id := c.lastID
	c.asked[id] = reply
	c.mu.Unlock()
	deadline, _ := ctx.Deadline()
	r := Request{ID: id, By: deadline.Sub(c.clock).Milliseconds(), Node: node, Leases: leases}
	if err := c.write(ctx, &r); err != nil {
		return nil, err
	}
	return reply, nil
}

// write writes one request, before ctx ends. Calls must not overlap.
func (c *conn) write(ctx context.Context, r *Request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	stop := abortWith(ctx, c.net.SetWriteDeadline)
	if _, err = c.body.Write(append(line, '\n')); err == nil {
		err = c.out.Flush()
	}
	stop()
	if err != nil { // perhaps half of the line is written
		c.close(err)
		return fmt.Errorf("lockdog: sending to the agent: %w", err)
	}
	return nil
}

// receive passes replies on until the connection fails.
func (c *conn) receive(lines *bufio.Scanner) {
	for {
		var r Reply
		if err := readLine(lines, &r); err != nil {
			c.close(err)
			return
		}
		c.mu.Lock()
		if reply := c.asked[r.ID]; reply != nil {
			delete(c.asked, r.ID)
			reply <- result{Reply: r}
		}
		c.mu.Unlock()
	}
}

// close closes the connection. It is the result of the requests that have no reply yet.
func (c *conn) close(err error) {
	_ = c.net.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = fmt.Errorf("the connection has failed: %w", err)
	}
	for id, reply := range c.asked {
		delete(c.asked, id)
		reply <- result{err: c.err}
	}
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}
