package delay

import (
	"net"
	"sync"
)

const (
	// chunkSize is what is read at once, at most.
	chunkSize = 16 << 10

	// window is how many bytes of one direction of a connection may be on their way. Its sender then waits, as TCP has it wait.
	window = 16 << 20
)

// stream is one direction of a connection.
type stream struct {
	from, to *net.TCPConn

	mu      sync.Mutex
	changed sync.Cond
	ready   net.Buffers // has arrived, and is to be written
	ended   bool        // nothing comes after ready
	held    int         // bytes that were read and are not yet written
	broken  bool        // by cut
}

func newStream(from, to *net.TCPConn) *stream {
	s := &stream{from: from, to: to}
	s.changed.L = &s.mu
	return s
}

// reserve waits until n more bytes may be on their way, false when none may any more.
func (s *stream) reserve(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.held > window && !s.broken {
		s.changed.Wait()
	}
	s.held += n
	return !s.broken
}

// deliver has data written; nil is the end.
func (s *stream) deliver(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data == nil {
		s.ended = true
	} else {
		s.ready = append(s.ready, data)
	}
	s.changed.Broadcast()
}

// take waits for what is to be written, and forgets what was: written bytes. It returns nothing at the end.
func (s *stream) take(written int) net.Buffers {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held -= written
	s.changed.Broadcast()
	for len(s.ready) == 0 && !s.ended && !s.broken {
		s.changed.Wait()
	}
	if s.broken {
		return nil
	}
	ready := s.ready
	s.ready = nil
	return ready
}

// write passes on what has arrived, and then the end.
func (s *stream) write() error {
	var written int64
	for {
		ready := s.take(int(written))
		if len(ready) == 0 {
			return s.to.CloseWrite()
		}
		var err error
		if written, err = ready.WriteTo(s.to); err != nil {
			return err
		}
	}
}

// cut ends both sides at once. It may be called often.
func (s *stream) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.changed.Broadcast()
	_ = s.from.Close() // nothing more is read or written: no error would tell anybody anything
	_ = s.to.Close()
}
