package script

import "testing"

// That others wait changes nothing of what a holder says of itself.
func TestMetaOfALockThatOthersWaitFor(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"7", "7 00-ab-cd-01", ""} {
		for _, mark := range []string{"+", "+~"} {
			token, traceparent := ParseMeta(mark + text)
			if wantToken, want := ParseMeta(text); token != wantToken || traceparent != want {
				t.Errorf("%q: %d %q, want %d %q", mark+text, token, traceparent, wantToken, want)
			}
		}
	}
}
