package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
)

const (
	envAgent      = "LOCKDOG_AGENT"
	defaultSocket = "/run/lockdog/agent.sock"

	// closeWithin bounds how long the agent waits for the calls under way when it ends.
	closeWithin = 10 * time.Second
)

func (a *app) agentCommand() *cobra.Command {
	var socket, mode, policy string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Renew a machine's leases together, free dead programs' locks",
		Long: `Renew the leases of all programs on this machine in common calls, one for up to 256 leases. A program's client uses the agent if it has WithAgent and the path
of the socket. It takes and releases locks by itself. If the agent is gone, stopped or slow, the client renews by itself, and no lease is lost. If a program dies, the
agent releases its locks at once.

Programs in other languages take a lock over HTTP, and hold it as long as the connection is open:
  curl -N --unix-socket /run/lockdog/agent.sock -X POST 'http://x/v1/locks/job?wait=10s'
--policy says which users may take which locks: {"www-data": ["orders:*"], "*": ["shared"]}.

The address of Redis must be that of the programs, in the same words. A new agent takes the socket over from an old one, so start it before you end the old one. It
runs until it gets SIGTERM or SIGINT.`,
		Example: `  lockdog agent -u redis.example.com:6379 --socket /run/lockdog/agent.sock
  lockdog agent status`,
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bits, err := strconv.ParseUint(mode, 8, 32)
			if err != nil || bits > 0o777 {
				return usagef("--mode %q: must be the rights for a file in octal digits, such as 0660", mode)
			}
			return a.agent(cmd.Context(), socket, os.FileMode(bits), policy)
		},
	}
	cmd.PersistentFlags().StringVar(&socket, "socket", cmp.Or(os.Getenv(envAgent), defaultSocket),
		"path of the Unix socket; default $"+envAgent+", or "+defaultSocket)
	cmd.Flags().StringVar(&mode, "mode", "0600", "rights for the socket: 0660 also for its group")
	cmd.Flags().StringVar(&policy, "policy", "",
		"JSON file: which users may take which locks over HTTP; default all")
	completeFiles(cmd, "socket", "policy")
	cmd.AddCommand(&cobra.Command{
		Use:   "status",
		Short: "Show what the agent of this machine does",
		Args:  args(0, 0, ""),
		RunE:  func(cmd *cobra.Command, _ []string) error { return a.agentStatus(cmd.Context(), socket) },
	}, &cobra.Command{
		Use:   "ls",
		Short: "List the locks that programs of this machine hold through the agent",
		Long: `List the locks that programs of this machine hold: by connections to the agent, and by clients WithAgent. Each user sees their own; root, and the
user that the agent runs as, all.`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.agentLocks(cmd.Context(), socket) },
	})
	return cmd
}

// agent runs an agent until ctx ends.
func (a *app) agent(ctx context.Context, socket string, mode os.FileMode, policy string) error {
	t, stop := a.telemetry(ctx)
	defer stop()
	server, err := a.conn.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	ag, err := agent.New(server.UniversalClient, agent.Config{
		TracerProvider: t.TracerProvider, MeterProvider: t.MeterProvider, Logger: t.Logger,
		Policy: policy, Options: []lock.Option{lock.WithKeyPrefix(server.Prefix)},
	})
	if err != nil {
		return err
	}
	l, err := agent.Listen(socket, mode)
	if err != nil {
		return errors.Join(usagef("--socket: %w", err), ag.Close(ctx))
	}
	served := make(chan error, 1)
	go func() { served <- ag.Serve(l) }()
	// It serves also if its output can't be written, such as to a file on a full disk.
	_ = a.print(fmt.Sprintf("renewing for clients at %s in %s\n", text.Safe(socket), text.Safe(server.Addr)),
		map[string]string{"socket": socket, "redis": server.Addr})
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	return errors.Join(err, ag.Close(within))
}

// askAgent gets what the agent at a socket has at a path.
func (a *app) askAgent(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, a.conn.Timeout)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lockdog"+path, http.NoBody)
	if err == nil {
		var resp *http.Response
		if resp, err = client.Do(req); err == nil { //nolint:gosec // the address is that of a socket, which the user names
			defer func() { _ = resp.Body.Close() }()
			if err = json.NewDecoder(resp.Body).Decode(into); resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
		}
	}
	if err != nil {
		return &exitError{code: exitUnavailable, err: fmt.Errorf("no answer of an agent at %s: %w", socket, err)}
	}
	return nil
}

// agentLocks prints the locks that the agent at a socket knows.
func (a *app) agentLocks(ctx context.Context, socket string) error {
	var list struct{ Locks []agent.HeldLock }
	if err := a.askAgent(ctx, socket, "/v1/locks", &list); err != nil {
		return err
	}
	if len(list.Locks) == 0 {
		_, _ = fmt.Fprintln(a.stderr, "no locks")
		return nil
	}
	var values []any
	var rows text.Rows
	rows.Add("NAME", "KIND", "PID", "UID", "FOR", "LEASE LEFT", "NOTE")
	for _, l := range list.Locks {
		values = append(values, l)
		left := "-" // its client knows
		if !l.Deadline.IsZero() {
			left = text.Span(time.Until(l.Deadline))
		}
		rows.Add(text.Safe(l.Name), text.Safe(l.Kind), strconv.Itoa(l.PID), strconv.Itoa(int(l.UID)),
			text.Age(l.Since, time.Now()), left, text.Safe(l.Note))
	}
	return a.print(rows.String(), values...)
}

// agentStatus prints what the agent at a socket says of itself.
func (a *app) agentStatus(ctx context.Context, socket string) error {
	var s agent.Status
	if err := a.askAgent(ctx, socket, "/v1/status", &s); err != nil {
		return err
	}
	each := 0.0
	if s.Calls > 0 {
		each = float64(s.Renewed) / float64(s.Calls)
	}
	return a.print(fmt.Sprintf(
		"process   %d, since %s\nclients   %d, which hold %d locks\nrenewed   %d leases, in %d calls: %.1f each\nfreed     %d locks of processes that had died\n",
		s.PID, s.Started.UTC().Format(time.RFC3339), s.Sessions, s.Held, s.Renewed, s.Calls, each, s.Freed), s)
}
