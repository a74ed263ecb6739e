package load

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/lock/agent"
)

// agentWorker is the child that runs the agent. It works by itself, and only reports.
type agentWorker struct {
	rdb    redis.UniversalClient
	m      *meter
	agent  *agent.Agent
	served chan error
}

func openAgent(cfg Config) (_ fleet.Worker[Reading], err error) {
	w := &agentWorker{rdb: connect(cfg.Addrs, cfg.Cluster), m: newMeter(), served: make(chan error, 1)}
	w.agent, err = agent.New(w.rdb, agent.Config{MeterProvider: w.m.provider})
	if err != nil {
		return nil, errors.Join(err, w.rdb.Close())
	}
	l, err := agent.Listen(cfg.Socket, 0o600)
	if err != nil {
		return nil, errors.Join(err, w.agent.Close(context.Background()), w.rdb.Close())
	}
	go func() { w.served <- w.agent.Serve(l) }()
	return w, nil
}

// Do implements fleet.Worker.
func (w *agentWorker) Do(ctx context.Context, request fleet.Request) (Reading, error) {
	switch request.Do {
	case Warm, Acquire, Release:
		return Reading{}, nil
	case Weigh:
		return weigh(), nil
	case Read:
		return w.m.read(context.WithoutCancel(ctx))
	}
	return Reading{}, fmt.Errorf("unknown request %q", request.Do)
}

// Close implements fleet.Worker.
func (w *agentWorker) Close() error {
	return errors.Join(w.agent.Close(context.Background()), <-w.served, w.rdb.Close())
}
