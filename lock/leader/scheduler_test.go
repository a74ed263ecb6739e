package leader_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scheduler starts a job each minute, as gocron does. It is what the recipe for gocron in docs/RECIPES.md is about.
type scheduler struct {
	job  func()
	stop chan struct{}
	all  sync.WaitGroup
}

func (s *scheduler) Start() {
	s.all.Go(func() {
		for {
			select {
			case <-time.After(time.Minute):
				s.all.Go(s.job)
			case <-s.stop:
				return
			}
		}
	})
}

// Shutdown starts no more jobs, and waits for those at work.
func (s *scheduler) Shutdown() {
	close(s.stop)
	s.all.Wait()
}

// A scheduler that is started and shut down within the term has no job at work beside the next leader's: its lock is renewed until its last job has ended.
func TestRun_SchedulerInTheTerm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := server(t)
		var atWork, ran [2]atomic.Int64
		lead := func(i int) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				s := &scheduler{stop: make(chan struct{}), job: func() {
					atWork[i].Add(1)
					defer atWork[i].Add(-1)
					ran[i].Add(1)
					for range 100 {
						time.Sleep(3 * time.Second)
						if atWork[1-i].Load() > 0 {
							t.Error("jobs of two leaders are at work")
							return
						}
					}
				}}
				s.Start()
				<-ctx.Done()
				s.Shutdown()
				return context.Cause(ctx)
			}
		}
		north := start(t, srv.Client().Mutex(name), lead(0))
		synctest.Wait()
		south := start(t, srv.NewClient().Mutex(name), lead(1))
		time.Sleep(10*time.Minute + time.Second)
		north.cancel(errWork) // SIGTERM
		time.Sleep(time.Second)
		if atWork[0].Load() == 0 {
			t.Error("no job is at work: the test shows nothing")
		}
		north.runs(t)
		_ = north.end(t, time.Hour)
		time.Sleep(10 * time.Minute)
		if ran[0].Load() < 5 || ran[1].Load() < 5 || !south.IsLeader() {
			t.Errorf("north ran %d jobs and south %d", ran[0].Load(), ran[1].Load())
		}
		south.cancel(errWork)
		_ = south.end(t, time.Hour)
	})
}
