package connect

import (
	"bytes"
	"testing"
)

// Commands are counted wherever their bytes are cut, and whatever is in their arguments.
func TestRequests(t *testing.T) {
	t.Parallel()
	sent := []byte("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$9\r\n*1\r\n$1\r\nx\r\n*2\r\n$3\r\nGET\r\n$12\r\n\r\n*3\r\n*4\r\n*5\r\n")
	for size := 1; size <= len(sent); size++ {
		var r requests
		n := int64(0)
		for piece := range bytes.Lines(sent) { // each line again in pieces
			for len(piece) > 0 {
				k := min(size, len(piece))
				n += r.begun(piece[:k])
				piece = piece[k:]
			}
		}
		if n != 3 {
			t.Errorf("in pieces of %d bytes: %d commands, want 3", size, n)
		}
	}
	var r requests
	if n := r.begun(sent); n != 3 {
		t.Errorf("in one piece: %d commands, want 3", n)
	}
}
