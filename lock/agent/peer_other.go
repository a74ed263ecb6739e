//go:build !linux

package agent

import (
	"errors"
	"net"
	"time"
)

// peer and process stand for what only Linux tells: see peer_linux.go.
type (
	peer struct {
		known bool
		uid   uint32
		pid   int
	}
	process struct{}
)

func peerAt(net.Conn) peer { return peer{} }

func processAt(net.Conn, peer) (*process, error) { return nil, errors.ErrUnsupported }

func (*process) died() bool          { return false }
func (*process) waitUntil(time.Time) {}
func (*process) close()              {}
