// Package sample measures a Redis from outside: what INFO says, every few milliseconds, less what asking costs.
package sample

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stat is what INFO commandstats says of one command.
type Stat struct {
	Calls int64
	CPU   time.Duration // spent in executing it; what runs inside a script is in the script's, too
}

// Info is what the load test reads of INFO, of one server or, added up, of several.
type Info struct {
	At       time.Time       // by the server's clock
	Commands map[string]Stat // by lower-case name, "client|setinfo" for subcommands
	CPU      time.Duration   // used by the whole process
	Version  string
}

// ErrOld means that the server's INFO lacks what is needed.
var ErrOld = errors.New("this Redis is too old or answers INFO in another way; 7.0 or newer is needed")

// Parse reads the sections server, cpu and commandstats.
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

// Since is what happened after an earlier look. Commands that were not called are left out.
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

// add makes one of several servers. The time is the last one's.
func (i *Info) add(o Info) {
	if i.Commands == nil {
		i.Commands = make(map[string]Stat)
	}
	for name, s := range o.Commands {
		sum := i.Commands[name]
		i.Commands[name] = Stat{Calls: sum.Calls + s.Calls, CPU: sum.CPU + s.CPU}
	}
	i.At, i.Version, i.CPU = o.At, o.Version, i.CPU+o.CPU
}
