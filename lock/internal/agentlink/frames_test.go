package agentlink

import (
	"encoding/json"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

func ours(owner string) bool {
	id, digits := script.ClientOf(owner)
	return id != "" && digits == "0123456789abcdef"
}

func TestMain(m *testing.M) { redistest.Main(m) }

// FuzzRequest: a request that passes Check can be made a call to Redis, and renews and releases only owners of its client.
func FuzzRequest(f *testing.F) {
	for _, holding := range []string{"0", "1", "2", "3"} {
		f.Add([]byte(`{"id":1,"by":1,"leases":[{"key":"a","owner":"x/1:0123456789abcdef-1:write","holding":` + holding + `,"ms":30000}]}`))
	}
	for _, release := range []string{"release", "fair_release", "write_release", "read_release", "semaphore_release", "retain"} {
		f.Add([]byte(`{"held":[{"key":"a","owner":"x/1:0123456789abcdef-1","ms":30000,"release":"` + release + `","counter":"redisson_lock_token:{a}"}]}`))
	}
	f.Add([]byte(`{"leases":[{}]}`))
	f.Add([]byte(`{"held":[{}],"freed":["a"]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var r Request
		if json.Unmarshal(line, &r) != nil || r.Check("0123456789abcdef") != nil {
			return
		}
		for _, h := range r.Held {
			if !ours(h.Owner) || !script.IsCounterOf(h.Counter, h.Key) {
				t.Errorf("accepted %+v", h)
			}
			var call script.Request
			script.ReleaserNamed(h.Release).Args(&call, script.ReleaseArgs{Lock: script.Lock{Key: h.Key, Counter: h.Counter}, Owner: h.Owner})
			if call.Keys[0] != h.Key {
				t.Errorf("routed by %q", call.Keys[0])
			}
		}
		if len(r.Leases) == 0 {
			return
		}
		args := script.NewRenewArgs(0, len(r.Leases))
		for _, l := range r.Leases {
			if !script.IsOwner(l.Owner) || !ours(l.Owner) || l.Milliseconds < 1 {
				t.Errorf("accepted %+v", l)
			}
			args.Add(l.Holding, l.Key, l.Owner, l.Milliseconds)
		}
		if call := args.Call(""); call.Keys[0] != r.Leases[0].Holding.Key(r.Leases[0].Key) {
			t.Errorf("routed by %q", call.Keys[0])
		}
	})
}
