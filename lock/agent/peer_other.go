//go:build !linux

package agent

import (
	"errors"
	"net"
	"time"
)

// peer stands for what only Linux tells: see peer_linux.go.
type peer struct {
	known bool
	uid   uint32
	pid   int
}

func peerAt(net.Conn) (*peer, error) { return &peer{}, errors.ErrUnsupported }

func (*peer) died() bool          { return false }
func (*peer) waitUntil(time.Time) {}
func (*peer) close()              {}
