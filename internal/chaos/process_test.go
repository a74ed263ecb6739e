//go:build chaos

package chaos_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/internal/proc"
)

// process is one client process, seen from the parent.
type process struct {
	number  int
	process *proc.Process
	stdin   io.WriteCloser
	lines   chan string // what it says
	history string
	output  string
	full    bool // instead, what it logs finds no space on its device
}

func (p *process) name() string { return fmt.Sprintf("client process %d", p.number) }

// outputOf returns the path of the file that gets a client process's standard error.
func (r *run) outputOf(number int) string {
	return filepath.Join(r.dir, fmt.Sprintf("client-%d.log", number))
}

func (r *run) newProcess() *process {
	r.lastProc++
	return &process{number: r.lastProc, lines: make(chan string, 8), output: r.outputOf(r.lastProc)}
}

// start starts a client process that reaches the servers through the proxies of the i-th client (gates).
func (r *run) start(t *testing.T, i int) *process {
	t.Helper()
	p := r.newProcess()
	p.history = filepath.Join(r.dir, fmt.Sprintf("client-%d.jsonl", p.number))
	o := r.orders(p.number).via(r.rig, r.gates[i])
	o.History = p.history
	p.launch(t, clientEnv, o)
	return p
}

// socket is the path of the agent's.
func (r *run) socket() string { return filepath.Join(r.dir, "agent") }

// via are the orders for a process that is behind proxies.
func (o orders) via(rig *rig, gates []*gate) orders {
	o.Via = make(map[string]string)
	for j, g := range gates {
		o.Via[rig.servers[j].Addr()] = g.Addr()
	}
	return o
}

// launch starts a process, and gives it its orders. The end of the test kills it, if nothing else has ended it.
func (p *process) launch(t *testing.T, env string, o orders) {
	t.Helper()
	say, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env+"=1")
	output := p.output
	if p.full {
		output = "/dev/full"
	}
	out, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // the child has its own
	cmd.Stderr = out
	theirOut, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdout.Close() }() // likewise
	cmd.Stdout = stdout
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if p.process, err = proc.Start(cmd); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		defer close(p.lines)
		for lines := bufio.NewScanner(theirOut); lines.Scan(); {
			p.lines <- lines.Text() // it says fewer than there is room for
		}
	}()
	t.Cleanup(func() {
		if err := p.process.Kill(); err != nil {
			t.Error(err)
		}
		_ = p.stdin.Close()
		<-heard
		_ = theirOut.Close()
	})
	p.say(t, string(say))
}

// orders are those of a process that dials the servers themselves.
func (r *run) orders(number int) orders {
	u := r.rig.universal
	o := orders{
		Proc: number, Seed: r.schedule.Seed, Addrs: u.Addrs, Master: u.MasterName, Cluster: u.IsClusterMode, Apart: r.rig.shape == quorum,
		Timeout: r.schedule.Timeout, Lease: r.schedule.Lease, Targets: r.schedule.Targets, Workers: r.schedule.Workers,
		Parties: r.schedule.parties(), Forces: r.schedule.Forces, Stale: r.schedule.Stale, Nests: r.schedule.Nests, Store: r.store.listener.Addr().String(),
	}
	if r.schedule.Agent {
		o.Agent = r.socket()
	}
	return o
}

func (p *process) say(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		t.Errorf("%s: %v", p.name(), err)
	}
}

// expect waits until it says a word. A process that was started in the middle may have to say first that it is warm.
func (p *process) expect(word string, within time.Duration) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case got, ok := <-p.lines:
		if got == saysWarm && word == saysIdle {
			return p.expect(word, within)
		}
		if !ok {
			text, err := os.ReadFile(p.output)
			return fmt.Errorf("%s ended before it was %s: %w: %s", p.name(), word, errors.Join(err, p.process.Wait(time.Second)), text)
		}
		if got != word {
			return fmt.Errorf("%s says %q, not %q", p.name(), got, word)
		}
		return nil
	case <-timer.C:
		_ = p.process.Signal(syscall.SIGQUIT) // so that its output says where its goroutines are
		_ = p.process.Wait(time.Second)
		return fmt.Errorf("%s is not %s after %v", p.name(), word, within)
	}
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.process.Signal(sig); err != nil {
		t.Fatalf("%v to %s: %v", sig, p.name(), err)
	}
}

// events are what it has put down.
func (p *process) events() ([]history.Event, error) {
	f, err := os.Open(p.history)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it was killed before it could
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return history.Read(f)
}
