package script

import (
	"strings"
	"testing"
	"time"
)

func TestEntry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		trust       time.Duration
		traceparent string
		want        string
	}{
		{0, "00-trace", "1234567890"},
		{3 * time.Second, "", "1234567890 3000 - a b:1"},
		{500 * time.Millisecond, "00-trace", "1234567890 500 00-trace a b:1"},
	} {
		if got := Entry("1234567890", tt.trust, tt.traceparent, "a b:1"); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

func TestParseRemoteGrant(t *testing.T) {
	t.Parallel()
	const now = "1700000000000000"
	got, ok := ParseRemoteGrant("1700000000000001 " + now + " 00-trace\na b:1\nh:1")
	if want := (RemoteGrant{"a b:1", 1_700_000_000_000_001, 1_700_000_000_000_000, "h:1", "00-trace"}); !ok || got != want {
		t.Errorf("%+v %v, want %+v", got, ok, want)
	}
	if got, ok := ParseRemoteGrant(now + " " + now + " -\na\n"); !ok || got.Traceparent != "" || got.From != "" {
		t.Errorf("%+v %v", got, ok)
	}
	for _, bad := range []string{
		"", "0", "1234567890", now + " " + now + " -\na", now + " " + now + " -\n\nh", now + " " + now + "\na\nh", now + " 12 -\na\nh",
		"-5 " + now + " -\na\nh", now + " x -\na\nh", "x " + now + " -\na\nh", now + " " + now + " -\na\nh\n",
	} {
		if got, ok := ParseRemoteGrant(bad); ok || got != (RemoteGrant{}) {
			t.Errorf("%q is taken for %+v", bad, got)
		}
	}
}

// FuzzParseRemoteGrant gives it what anybody may publish.
func FuzzParseRemoteGrant(f *testing.F) {
	f.Add("1700000000000001 1700000000000000 00-trace\na b:1\nh:1")
	f.Add("0")
	f.Fuzz(func(t *testing.T, payload string) {
		o, ok := ParseRemoteGrant(payload)
		switch {
		case !ok && o != (RemoteGrant{}):
			t.Errorf("%q: none, and %+v", payload, o)
		case ok && (o.Owner == "" || o.Token <= 0 || o.Now <= LeastTime || !strings.HasSuffix(payload, "\n"+o.Owner+"\n"+o.From)):
			t.Errorf("%q is taken for %+v", payload, o)
		}
	})
}
