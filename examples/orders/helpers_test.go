package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const limit = 2 * time.Minute // of everything that is waited for

// instance is a service that runs in this process.
type instance struct {
	t    *testing.T
	url  string
	logs *output
	stop func() int // ends it and gives its exit code
}

// starting is held while a service sets the global providers and takes its meters from them.
var starting sync.Mutex

// launch runs the service on a free port, without load and workers unless args ask for them.
func launch(t *testing.T, redisAddr string, args ...string) *instance {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	i := &instance{t: t, logs: &output{}}
	code := make(chan int, 1)
	all := append([]string{"-addr", "127.0.0.1:0", "-redis", redisAddr, "-load", "0", "-workers", "0"}, args...)
	go func() { code <- run(ctx, all, io.Discard, i.logs) }()
	i.stop = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	t.Cleanup(func() {
		i.stop()
		if t.Failed() {
			t.Logf("log of %s:\n%s", i.url, i.logs)
		}
	})
	url := regexp.MustCompile(`serving url=(\S+)`)
	i.until("serving", func() bool {
		if m := url.FindStringSubmatch(i.logs.String()); m != nil {
			i.url = m[1]
		}
		return i.url != ""
	})
	return i
}

// until polls.
func (i *instance) until(what string, ok func() bool) {
	i.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	over := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-over:
			i.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// client keeps no connection, and so no goroutine.
var client = http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true}}

// do sends a request; it may be called from any goroutine.
func (i *instance) do(method, path string) (int, string) {
	req, err := http.NewRequest(method, i.url+path, nil)
	if err != nil {
		i.t.Error(err)
		return 0, ""
	}
	resp, err := client.Do(req)
	if err != nil {
		i.t.Error(err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Error(err)
	}
	return resp.StatusCode, string(body)
}

// change asks for an order to be changed, which has to succeed.
func (i *instance) change(path string) order {
	i.t.Helper()
	var o order
	code, body := i.do(http.MethodPost, path)
	if code != http.StatusOK {
		i.t.Errorf("POST %s: %d %s", path, code, body)
	} else if err := json.Unmarshal([]byte(body), &o); err != nil {
		i.t.Errorf("POST %s: %q: %v", path, body, err)
	}
	return o
}

// metric sums the series of a metric whose labels contain all of the given texts; -1 when there is none.
func (i *instance) metric(name string, labels ...string) float64 {
	i.t.Helper()
	_, page := i.do(http.MethodGet, "/metrics")
	sum, found := 0.0, false
lines:
	for line := range strings.Lines(page) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue lines
			}
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			i.t.Fatalf("%q: %v", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return -1
	}
	return sum
}

// output is a log that can be read while it is written.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
