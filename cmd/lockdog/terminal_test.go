//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// giveTerminal has a command start at a terminal, which is its stdin, but not its stdout and stderr.
func giveTerminal(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = tty.Close(), terminal.Close() })
	cmd.Stdin, cmd.SysProcAttr = tty, &syscall.SysProcAttr{Setsid: true, Setctty: true}
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
	until(t, "the command goes on", func() bool { // what is typed while the shell hands over the terminal may be lost
		term.types(t, "fg\n") // for the shell first, and then for the command
		return strings.Contains(term.all(), "\r\nwhole fg")
	})

	term.types(t, self+" run job --lease 10s -- sh -c 'echo begun again; read word'\n")
	term.shows(t, "\r\nbegun again")
	term.types(t, "\x1a")
	until(t, "the lock is free", func() bool { return server.Client(t).Exists(t.Context(), "job").Val() == 0 })
	term.showsLater(t, 2, "Stopped", "ready> ")
	term.types(t, "\nfg; echo code $?\n") // the first key may be lost
	term.shows(t, "code 76")
}

// A signal reaches the command once, whether the terminal or the shell sends it to all that run together, or somebody to lockdog alone. An interactive
// shell leaves the process group; here setsid does.
func TestRunSignaledOnceAtTerminal(t *testing.T) {
	t.Parallel()
	const count = `trap 'n=$((n+1)); echo got $n' INT; trap 'exit 7' TERM; echo begun; while :; do sleep 0.05; done`
	for name, command := range map[string][]string{
		"together":              {"bash", "-c", count},
		"a process group apart": {"setsid", "bash", "-c", count},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			cmd, _, _ := program(t.Context(), t, server.Addr(), nil, append([]string{"run", "job", "--"}, command...)...)
			term := atTerminal(t, cmd)
			term.shows(t, "begun")
			for i, interrupt := range []func(){
				func() { term.types(t, "\x03") },
				func() { _ = syscall.Kill(cmd.Process.Pid, syscall.SIGINT) },
				func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) },
				func() { _ = syscall.Kill(cmd.Process.Pid, syscall.SIGINT) },
			} {
				// The guard takes what comes within a second for the same signal. What comes as the command starts may come twice.
				time.Sleep(1200 * time.Millisecond)
				interrupt()
				term.shows(t, fmt.Sprint("got ", i+1))
			}
			time.Sleep(1200 * time.Millisecond)
			_ = syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)
			term.ends(t)
			if code := codeOf(cmd.ProcessState); code != 7 || strings.Contains(term.all(), "got 5") {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A key that is pressed while the guard and the command start has its effect, too.
func TestRunStartsAtTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	term, self := shellAtTerminal(t, server.Addr())
	pause := func() { time.Sleep(rand.N(300 * time.Millisecond)) }
	for i := range 8 {
		mark, name := fmt.Sprintf("round %d, ", i), fmt.Sprint("stopped", i)
		term.types(t, "echo "+mark+"$((1 + 1)); "+self+" run "+name+" -- sleep 600\n")
		term.shows(t, mark+"2")
		pause()
		wait := 50 * time.Millisecond
		until(t, "it is stopped", func() bool {
			// The shell may get the first Ctrl-Z itself. And Ctrl-Z makes the terminal drop what the shell has printed and
			// nobody has read yet, even that the command is stopped: so ask for that.
			term.types(t, "\x1ajobs\n")
			time.Sleep(wait)
			wait *= 2
			_, after, _ := strings.Cut(term.all(), mark+"2")
			return strings.Contains(after, "Stopped")
		})
		term.types(t, "\nkill %+; echo over $((1 + "+fmt.Sprint(i)+"))\n")
		term.shows(t, fmt.Sprintf("\r\nover %d", i+1))
		until(t, "it ends", func() bool { return server.Client(t).Exists(t.Context(), name).Val() == 0 })
	}
	for i := range 8 {
		mark := fmt.Sprintf("script %d, ", i)
		term.types(t, `bash -c "echo `+mark+`\$((1 + 1)); `+self+` run interrupted -- sleep 600; echo goes \"\"on"`+"\n")
		term.shows(t, mark+"2")
		pause()
		term.types(t, "\x03")
		term.showsLater(t, 1, mark+"2", "ready> ")
	}
	if strings.Contains(term.all(), "goes on") {
		t.Error("a script went on")
	}
}

// A signal that comes again and again reaches the command, and one that is sent while all are stopped, once.
func TestRunSignaledOftenAtTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	term, self := shellAtTerminal(t, server.Addr())
	dir := t.TempDir()
	run := self + " run job -- bash -c 'cd " + dir + `; trap "echo got >> got" USR1; trap "echo > asked; exit 7" TERM; echo be""gun; while :; do read -t 0.05 <> nothing; done'`
	if err := syscall.Mkfifo(dir+"/nothing", 0o600); err != nil {
		t.Fatal(err)
	}
	got := func() int {
		text, _ := os.ReadFile(dir + "/got") // not there yet
		return strings.Count(string(text), "got")
	}
	term.types(t, run+"\n")
	term.shows(t, "\r\nbegun")
	time.Sleep(1200 * time.Millisecond) // see TestRunSignaledOnceAtTerminal
	term.types(t, "\x1a")
	term.shows(t, "Stopped")
	term.types(t, "\nkill -USR1 %1\n")
	time.Sleep(1500 * time.Millisecond)
	term.types(t, "fg\n")
	until(t, "the signal arrives", func() bool { return got() > 0 })
	time.Sleep(time.Second) // a second one would come
	if n := got(); n != 1 {
		t.Errorf("the command got %d signals", n)
	}
	lockdog, err := exec.CommandContext(t.Context(), "pgrep", "-P", fmt.Sprint(term.cmd.Process.Pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(lockdog)))
	until(t, "the command is asked to end", func() bool {
		_ = syscall.Kill(pid, syscall.SIGTERM)
		return exists(dir + "/asked")
	})
}

// What a killed command has done to the terminal is undone.
func TestRunRestoresTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	term, self := shellAtTerminal(t, server.Addr())
	for i, command := range []string{
		`sh -c "trap \"\" TERM; stty raw -echo; echo be\"\"gun; read x"`,
		`bash --norc -i -c "trap \"\" TERM; echo be\"\"gun; read x"`,
	} {
		name := fmt.Sprint("job", i)
		term.types(t, `bash -c '`+self+` run `+name+` --grace 1ms -- `+command+`; echo co""de $?; stty -a | tr " ;" "\n" | grep -c -x -E "isig|icanon|echo|icrnl"; read word; echo re""ad $word'`+"\n")
		term.showsLater(t, i, "code 76", "begun")
		server.Client(t).Del(t.Context(), name)
		term.showsLater(t, i, "\nread ", "code 76\r\n4\r\n")
		term.types(t, "this\n")
		term.showsLater(t, i, "\nread ", "\nread this")
	}
}

// At a terminal a command under a lock is as good a part of a script or a pipeline as it is without.
func TestRunInScriptAtTerminal(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	term, self := shellAtTerminal(t, server.Addr())
	run := self + " run job -- sh -c "

	// It may ask at the terminal although its input is a pipe, as ssh does for a password.
	term.types(t, "echo data | "+run+"'read data; echo pass\"\"word:; read word < /dev/tty; echo $data and $word'\n")
	term.shows(t, "\r\npassword:")
	term.types(t, "secret\n")
	term.shows(t, "\r\ndata and secret")

	// So may the end of the pipeline, as less does.
	term.types(t, run+"'echo page' | sh -c 'read page; echo $page, mo\"\"re?; read word < /dev/tty; echo then $word'\n")
	term.shows(t, "\r\npage, more?")
	term.types(t, "next\n")
	term.shows(t, "\r\nthen next")

	// Ctrl-C ends the script around it, too.
	term.types(t, `bash -c "`+run+`'echo wor\"\"king; exec sleep 600'; echo goes on"`+"\n")
	term.shows(t, "\r\nworking")
	term.types(t, "\x03")
	term.showsLater(t, 1, "^C", "ready> ")
	term.types(t, "echo code $?\n")
	term.shows(t, "\r\ncode 130")
	if strings.Contains(term.all(), "\r\ngoes on") {
		t.Error("the script went on")
	}

	// The loss of the lock ends all that it has started, and nothing else.
	dir := t.TempDir()
	term.types(t, "sleep 600 & bash -c 'cd "+dir+`; sleep 600 & echo $! > other; `+self+
		` run job -- sh -c "trap \"\" TERM; sleep 600 & echo \$! > child; touch begun; wait; sleep 600" | cat; echo code ${PIPESTATUS[0]}; kill -0 $(cat other) && echo the other li""ves; kill $(cat other)'`+"\n")
	until(t, "it runs", func() bool { return exists(dir + "/begun") })
	server.Client(t).Del(t.Context(), "job")
	term.shows(t, "\r\ncode 76")
	term.shows(t, "\r\nthe other lives")
	term.types(t, "kill -0 $(cat "+dir+"/child) || echo the child is de\"\"ad; kill %1; echo code $?\n")
	term.shows(t, "\r\nthe child is dead")
	term.shows(t, "\r\ncode 0")
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
	if code := codeOf(term.cmd.ProcessState); code != exitSignal+int(syscall.SIGINT) || l.Err() != nil {
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
	term.types(t, "\nbg\n") // the first key may be lost
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
