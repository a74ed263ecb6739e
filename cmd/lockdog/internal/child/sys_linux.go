package child

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopts says whether orphans below this process become its children.
const adopts = true

// adoptOrphans makes this process the parent of what the processes below it leave behind.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // every Linux of the last ten years has it

// diesWithParent has the kernel kill a process when the thread that started it is gone.
func diesWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// clock is a clock, in ns, that all processes share and that goes on while the machine sleeps.
func clock() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // never fails
	return now.Nano()
}

// descendants are the processes below this one, without some and those below them. There are none where /proc isn't that of our PID namespace.
func descendants(without map[int]bool) (all []int) {
	self := os.Getpid()
	if is, err := os.Readlink("/proc/self"); err != nil || is != strconv.Itoa(self) {
		return nil
	}
	for queue := []int{self}; len(queue) > 0; queue = queue[1:] {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", queue[0])) // it has ended: then its children are another's
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
