package lock

import (
	"testing"
	"unsafe"
)

// A process may hold a million locks: what each keeps in memory grows on purpose only. The limits are size classes of
// Go's allocator.
func TestWhatALockKeepsIsSmall(t *testing.T) {
	t.Parallel()
	for what, size := range map[string]struct{ got, most uintptr }{
		"grant": {unsafe.Sizeof(grant{}), 384},
		"Mutex": {unsafe.Sizeof(Mutex{}), 144},
		"claim": {unsafe.Sizeof(claim{}), 64},
	} {
		if size.got > size.most {
			t.Errorf("a %s has %d bytes, want %d at most", what, size.got, size.most)
		}
	}
}
