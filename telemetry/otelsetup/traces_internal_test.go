package otelsetup

import "testing"

// TestProtocolOf is inside the package because the port that decides is a fixed one, which a test cannot count
// on having.
func TestProtocolOf(t *testing.T) {
	for _, v := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
		t.Setenv(v, "")
	}
	for endpoint, want := range map[string]string{
		"": protocolHTTP, "localhost:4317": protocolGRPC, "https://collector:4317": protocolGRPC, "localhost:4318": protocolHTTP,
		"[::1]:4317": protocolGRPC, "http://collector": protocolHTTP,
	} {
		u, err := parseEndpoint(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if got := protocolOf(Config{}, u, "TRACES"); got != want {
			t.Errorf("%q: %s, want %s", endpoint, got, want)
		}
		if got := protocolOf(Config{Protocol: protocolJSON}, u, "TRACES"); got != protocolJSON {
			t.Errorf("%q: %s is not what was asked for", endpoint, got)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocolHTTP)
	u, _ := parseEndpoint("localhost:4317")
	if got := protocolOf(Config{}, u, "TRACES"); got != protocolHTTP {
		t.Errorf("the environment is not asked: %s", got)
	}
}
