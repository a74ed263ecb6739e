package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress reports how far the run is: a bar with the time left on a terminal, plain lines elsewhere. It goes by time, as all
// durations are known in advance.
type progress struct {
	out   io.Writer
	bar   *progressbar.ProgressBar // invisible where there is no terminal
	plain bool                     // no terminal
	start time.Time
	total time.Duration
	done  time.Duration // of the total, planned
}

const barStep = 100 * time.Millisecond

func newProgress(out io.Writer) *progress {
	plain := !terminal(out)
	return &progress{out: out, plain: plain, start: time.Now(), bar: progressbar.NewOptions64(1,
		progressbar.OptionSetVisibility(!plain), progressbar.OptionSetWriter(out), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionUseANSICodes(true), progressbar.OptionThrottle(barStep))}
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// plan sets how long the run will take.
func (p *progress) plan(total time.Duration) {
	p.total = total
	p.bar.ChangeMax64(total.Milliseconds())
}

// say announces what comes next.
func (p *progress) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !p.plain {
		p.bar.Describe(fmt.Sprintf("%-44s", text))
		return
	}
	left := max(p.total-p.done, 0).Round(time.Second)
	_, _ = fmt.Fprintf(p.out, "%5.1fs  %s (about %v left)\n", time.Since(p.start).Seconds(), text, left)
}

// pass counts planned time as over, in which nothing else moved the bar.
func (p *progress) pass(d time.Duration) {
	p.done += d
	_ = p.bar.Set64(min(p.done, p.total).Milliseconds()) // a bar that can't be drawn is no reason to stop
}

// wait lets planned time pass.
func (p *progress) wait(ctx context.Context, d time.Duration) error {
	before, began := p.done, time.Now()
	for {
		passed := min(time.Since(began), d)
		p.pass(before + passed - p.done)
		if passed == d {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(min(barStep, d-passed)):
		}
	}
}

// end removes the bar.
func (p *progress) end() {
	_ = p.bar.Finish()
	_ = p.bar.Close()
}
