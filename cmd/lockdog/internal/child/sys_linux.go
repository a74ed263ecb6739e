package child

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownExecutable returns a path by which this process can start its own program. The file may have been replaced or
// removed since the start, by an upgrade for example.
func ownExecutable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Stat(self); err != nil {
		return os.Executable()
	}
	return self, nil
}

// keepName names this process lockdog: started by /proc/self/exe, it would be called exe.
func keepName() { _ = os.WriteFile("/proc/self/comm", []byte("lockdog"), 0) }

// adopts reports whether orphaned descendants become children of this process.
const adopts = true

// adoptOrphans makes orphaned descendants children of this process.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // Linux has it since 3.4

// diesWithParent makes the kernel kill a process when the thread that started it ends.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

const clockID = unix.CLOCK_BOOTTIME // continues while the machine sleeps

// whileBlocked calls f in a thread in which signals are blocked. A process that f starts inherits that.
func whileBlocked(signals []syscall.Signal, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, sigset(signals), &before) // fails only for invalid arguments, as below
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	return f()
}

// unblock unblocks signals in this thread.
func unblock(signals []syscall.Signal) {
	_ = unix.PthreadSigmask(unix.SIG_UNBLOCK, sigset(signals), nil)
}

func sigset(signals []syscall.Signal) *unix.Sigset_t {
	set := new(unix.Sigset_t)
	bits := 8 * int(unsafe.Sizeof(set.Val[0]))
	for _, sig := range signals {
		set.Val[(int(sig)-1)/bits] |= 1 << ((int(sig) - 1) % bits)
	}
	return set
}

// isStopped reports whether a process is stopped, as by Ctrl-Z.
func isStopped(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ") // the name before it may have spaces
	return strings.HasPrefix(state, "T")
}

// listsDescendants reports whether descendants works: /proc must be that of our PID namespace, and the kernel must list
// children there (CONFIG_PROC_CHILDREN).
func listsDescendants() bool {
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return false
	}
	_, err = os.Stat("/proc/thread-self/children")
	return err == nil
}

// descendants returns the descendants of this process, except the given ones and their descendants.
func descendants(without map[int]bool) (all []int) {
	if !listsDescendants() {
		return nil
	}
	self := os.Getpid()
	for queue := []int{self}; len(queue) > 0; queue = queue[1:] {
		// After an error there are no threads: the process has ended, and its children have another parent.
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", queue[0]))
		for _, thread := range threads {
			children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", queue[0], thread.Name()))
			for text := range strings.FieldsSeq(string(children)) {
				if pid, err := strconv.Atoi(text); err == nil && !without[pid] {
					all, queue = append(all, pid), append(queue, pid)
				}
			}
		}
	}
	return all
}
