package agentlink

import (
	"encoding/json"
	"testing"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// FuzzRequest: a request that passes Check can be made a call to Redis, and renews only owners of lockdog.
func FuzzRequest(f *testing.F) {
	for _, holding := range []string{"0", "1", "2", "3"} {
		f.Add([]byte(`{"id":1,"by":1,"leases":[{"key":"a","owner":"x/1:0123456789abcdef-1:write","holding":` + holding + `,"ms":30000}]}`))
	}
	f.Add([]byte(`{"leases":[{}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var r Request
		if json.Unmarshal(line, &r) != nil || r.Check() != nil {
			return
		}
		args := script.NewRenewArgs(0, len(r.Leases))
		for _, l := range r.Leases {
			if !script.IsOwner(l.Owner) || script.ClientIDOf(l.Owner) == "" || l.Milliseconds < 1 {
				t.Errorf("accepted %+v", l)
			}
			args.Add(l.Holding, l.Key, l.Owner, l.Milliseconds)
		}
		if call := args.Call(""); call.Keys[0] != r.Leases[0].Holding.Key(r.Leases[0].Key) {
			t.Errorf("routed by %q", call.Keys[0])
		}
	})
}
