//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// console is a program at a terminal, and what it has printed.
type console struct {
	keys interface{ WriteString(string) (int, error) }
	done chan struct{} // the program has ended
	cmd  *exec.Cmd

	mu   sync.Mutex
	text strings.Builder
}

// atTerminal starts a program at a terminal of its own. It ends with the test.
func atTerminal(t *testing.T, cmd *exec.Cmd) *console {
	t.Helper()
	cmd.Stdout, cmd.Stderr = nil, nil
	term := &console{done: make(chan struct{}), cmd: cmd}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal showed %q", term.all())
		}
	})
	file, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	term.keys = file
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := file.Read(buf)
			term.mu.Lock()
			term.text.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(term.done)
		_ = cmd.Wait() // its code is in ProcessState
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-term.done
		_ = file.Close()
		<-read
	})
	return term
}

// shellAtTerminal starts a shell, which says "ready> " and has what the program at that path needs in its environment.
func shellAtTerminal(t *testing.T, address string) (term *console, self string) {
	t.Helper()
	cmd, _, _ := program(t.Context(), t, address, nil)
	shell := exec.CommandContext(t.Context(), "bash", "--norc", "-i")
	shell.Env = append(cmd.Env, "PS1=ready> ", "HISTFILE=")
	term = atTerminal(t, shell)
	term.shows(t, "ready> ")
	return term, cmd.Path
}

// shows waits for a text.
func (term *console) shows(t *testing.T, text string) {
	t.Helper()
	until(t, "the terminal shows "+text, func() bool { return strings.Contains(term.all(), text) })
}

// showsLater waits for a text after another has come n times.
func (term *console) showsLater(t *testing.T, n int, first, text string) {
	t.Helper()
	until(t, "the terminal shows "+text, func() bool {
		parts := strings.SplitN(term.all(), first, n+1)
		return len(parts) == n+1 && strings.Contains(parts[n], text)
	})
}

func (term *console) all() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.text.String()
}

// ends waits until the program has ended.
func (term *console) ends(t *testing.T) {
	t.Helper()
	until(t, "the program ends", func() bool {
		select {
		case <-term.done:
			return true
		default:
			return false
		}
	})
}

func (term *console) types(t *testing.T, keys string) {
	t.Helper()
	if _, err := term.keys.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// The command reads from the terminal, and Ctrl-C is for it.
func TestRunAtTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cmd, _, _ := program(t.Context(), t, server.Addr(), nil, "run", "job", "--", "sh", "-c", `trap 'echo winding down; exit 7' INT; read word; echo "read $word"; while :; do sleep 0.05; done`)
	term := atTerminal(t, cmd)
	term.types(t, "something\n")
	term.shows(t, "read something")
	term.types(t, "\x03")
	term.shows(t, "winding down")
	<-term.done
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d", code)
	}
	if n := server.Client(t).Exists(t.Context(), "job").Val(); n != 0 {
		t.Error("the lock isn't free")
	}
}

// Ctrl-Z stops the command and the program, as a job of the shell. fg goes on with both, if the lock is still there; otherwise the command ends.
func TestRunStoppedAtTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	term, self := shellAtTerminal(t, server.Addr())

	// The commands start no others: one that is stopped between vfork and exec keeps the shell from being stopped.
	term.types(t, self+" run job --lease 1h -- sh -c 'echo begun; read word; echo whole $word'\n")
	term.shows(t, "\r\nbegun")
	term.types(t, "\x1a")
	term.showsLater(t, 1, "Stopped", "ready> ")
	term.types(t, "fg\n")
	until(t, "the command goes on", func() bool { // what is typed while the shell hands over the terminal may be lost
		term.types(t, "again\n")
		return strings.Contains(term.all(), "\r\nwhole again")
	})

	term.types(t, self+" run job --lease 10s -- sh -c 'echo begun again; read word'\n")
	term.shows(t, "\r\nbegun again")
	term.types(t, "\x1a")
	until(t, "the lock is free", func() bool { return server.Client(t).Exists(t.Context(), "job").Val() == 0 })
	term.showsLater(t, 2, "Stopped", "ready> ")
	term.types(t, "fg; echo code $?\n")
	term.shows(t, "code 76")
}

// askedToUnlock has unlock ask at a terminal whether the holder is to lose the lock.
func askedToUnlock(t *testing.T, server *redistest.Server) (holder *lock.Lease, term *console) {
	t.Helper()
	holder = hold(t, server.Client(t), "job")
	cmd, _, _ := program(t.Context(), t, server.Addr(), nil, "unlock", "job", "--force")
	term = atTerminal(t, cmd)
	term.shows(t, holder.Owner())
	term.shows(t, "[y/N]")
	return holder, term
}

// Who gets the lock while unlock asks isn't the one who was shown.
func TestUnlock_ChangesHands(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	first, term := askedToUnlock(t, server)
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := hold(t, server.Client(t), "job")
	term.types(t, "y\n")
	term.shows(t, "changed hands")
	term.showsLater(t, 1, second.Owner(), "[y/N]")
	if second.Err() != nil {
		t.Errorf("it lost the lock: %v", second.Err())
	}
	term.types(t, "y\n")
	term.shows(t, "taken away from holder")
	<-second.Context().Done()
	term.ends(t)
}

// Ctrl-C is an answer, too.
func TestUnlock_Interrupted(t *testing.T) {
	t.Parallel()
	l, term := askedToUnlock(t, redistest.Start(t))
	term.types(t, "\x03")
	term.ends(t)
	if code := term.cmd.ProcessState.ExitCode(); code != exitSignal+int(syscall.SIGINT) || l.Err() != nil {
		t.Errorf("exit code %d; the holder: %v", code, l.Err())
	}
}

// bg goes on with both behind the shell, which keeps the terminal, also when the command has ended.
func TestRunInBackgroundOfTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	term, self := shellAtTerminal(t, server.Addr())
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/nothing", 0o600); err != nil { // for a pause without another process: see TestRunStoppedAtTerminal
		t.Fatal(err)
	}

	term.types(t, self+" run job --lease 1h -- bash -c 'echo begun; until [ -e "+dir+"/over ]; do read -t 0.05 <> "+dir+"/nothing; echo step >> "+dir+"/steps; done'\n")
	term.shows(t, "\r\nbegun")
	term.types(t, "\x1a")
	term.showsLater(t, 1, "Stopped", "ready> ")
	steps := func() int64 {
		info, err := os.Stat(dir + "/steps")
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := steps()
	term.types(t, "bg\n")
	until(t, "the command goes on", func() bool { return steps() > before })
	term.types(t, "echo still $((1 + 1))\n")
	term.shows(t, "\r\nstill 2")
	if err := os.WriteFile(dir+"/over", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	term.types(t, "wait; echo ended $((1 + 1))\n")
	term.shows(t, "\r\nended 2")
	if server.Client(t).Exists(t.Context(), "job").Val() != 0 {
		t.Error("the lock isn't free")
	}
}
