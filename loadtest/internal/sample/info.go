// Package sample measures a Redis from outside with INFO, every 20 ms, and subtracts the cost of asking.
package sample

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stat is the entry of one command in INFO commandstats.
type Stat struct {
	Calls int64
	CPU   time.Duration // for its execution, by the clock; that of a script includes the commands that it calls
}

// Info is the part of INFO that the load test reads, for one server or as the sum of several.
type Info struct {
	At       time.Time       // by the server's clock
	Commands map[string]Stat // by lower-case name, "client|setinfo" for subcommands
	CPU      time.Duration   // of the whole process; Servers.Look subtracts that of INFO
	Version  string
}

// ErrOld means that the server's INFO lacks what is needed, or has it in another format.
var ErrOld = errors.New("this Redis is too old or answers INFO in another way; 7.0 or newer is needed")

// Parse parses the sections server, cpu and commandstats.
func Parse(text string) (Info, error) {
	info := Info{Commands: make(map[string]Stat)}
	var errs []error
	number := func(s string) float64 {
		f, err := strconv.ParseFloat(s, 64)
		errs = append(errs, err)
		return f
	}
	for line := range strings.Lines(text) {
		field, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.HasPrefix(field, "#") {
			continue
		}
		switch field {
		case "redis_version":
			info.Version = value
		case "server_time_usec":
			info.At = time.UnixMicro(int64(number(value)))
		case "used_cpu_sys", "used_cpu_user":
			info.CPU += time.Duration(number(value) * float64(time.Second))
		default:
			name, ok := strings.CutPrefix(field, "cmdstat_")
			if !ok {
				continue
			}
			var calls, usec int64
			_, err := fmt.Sscanf(value, "calls=%d,usec=%d", &calls, &usec) // more follows
			errs = append(errs, err)
			info.Commands[name] = Stat{Calls: calls, CPU: time.Duration(usec) * time.Microsecond}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return info, fmt.Errorf("%w: %w", ErrOld, err)
	}
	if info.At.IsZero() {
		return info, ErrOld
	}
	return info, nil
}

// Since returns what happened since an earlier look. It omits commands that weren't called.
func (i Info) Since(earlier Info) Info {
	d := Info{At: i.At, Commands: make(map[string]Stat), CPU: i.CPU - earlier.CPU}
	for name, s := range i.Commands {
		before := earlier.Commands[name]
		if s.Calls != before.Calls {
			d.Commands[name] = Stat{Calls: s.Calls - before.Calls, CPU: s.CPU - before.CPU}
		}
	}
	return d
}

// add adds the Info of another server. The sum has that server's time and version.
func (i *Info) add(o Info) {
	for name, s := range o.Commands {
		sum := i.Commands[name]
		i.Commands[name] = Stat{Calls: sum.Calls + s.Calls, CPU: sum.CPU + s.CPU}
	}
	i.At, i.Version, i.CPU = o.At, o.Version, i.CPU+o.CPU
}
