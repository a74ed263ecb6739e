package otelsetup_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lockdog/lockdog/telemetry/otelsetup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// variables are those the package looks at. Each test starts without them.
var variables = []string{
	"OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER",
	"OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
	"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
	"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_PROPAGATORS", "NO_COLOR",
}

// start starts with KeepGlobals unless change says otherwise, and with a log that is kept.
func start(t *testing.T, env map[string]string, change func(*otelsetup.Config)) (*otelsetup.Providers, *syncBuffer) {
	t.Helper()
	for _, v := range variables {
		t.Setenv(v, env[v])
	}
	var log syncBuffer
	cfg := otelsetup.Config{ServiceName: "orders", ServiceVersion: "1.2.3", LogOutput: &log, NoColor: true, KeepGlobals: true}
	if change != nil {
		change(&cfg)
	}
	p, err := otelsetup.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p, &log
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// scrape gets the metrics as Prometheus does, in OpenMetrics or in the older text format.
func scrape(t *testing.T, h http.Handler, accept string) string {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	if rec.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", rec.Code, rec.Body)
	}
	if want := strings.TrimSpace(strings.Split(accept, ";")[0]); !strings.HasPrefix(rec.Header().Get("Content-Type"), want) {
		t.Fatalf("scraped as %s", rec.Header().Get("Content-Type"))
	}
	return rec.Body.String()
}

// otlpServer is a collector on loopback that notes what it is sent.
type otlpServer struct {
	collector.UnimplementedTraceServiceServer
	mu      sync.Mutex
	got     []string // path and content type, or "grpc"
	metrics *metricscollector.ExportMetricsServiceRequest
	addr    string
}

func (s *otlpServer) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, what)
}

func (s *otlpServer) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

func newHTTPCollector(t *testing.T) *otlpServer {
	s := &otlpServer{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note(r.URL.Path + " " + r.Header.Get("Content-Type"))
		if r.URL.Path == "/v1/metrics" {
			var sent metricscollector.ExportMetricsServiceRequest
			if body, err := io.ReadAll(r.Body); err != nil || proto.Unmarshal(body, &sent) != nil {
				t.Errorf("metrics: %v, %q", err, body)
			}
			s.mu.Lock()
			s.metrics = &sent
			s.mu.Unlock()
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		if r.Header.Get("Content-Type") == "application/json" {
			_, _ = w.Write([]byte("{}"))
		}
	}))
	t.Cleanup(srv.Close)
	s.addr = srv.Listener.Addr().String()
	return s
}

func newGRPCCollector(t *testing.T) *otlpServer {
	s := &otlpServer{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, s)
	metricscollector.RegisterMetricsServiceServer(srv, metricsService{s: s})
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(listener) })
	t.Cleanup(func() {
		srv.Stop()
		wg.Wait()
	})
	s.addr = listener.Addr().String()
	return s
}

func (s *otlpServer) Export(context.Context, *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.note("grpc")
	return &collector.ExportTraceServiceResponse{}, nil
}

type metricsService struct {
	metricscollector.UnimplementedMetricsServiceServer
	s *otlpServer
}

func (m metricsService) Export(context.Context, *metricscollector.ExportMetricsServiceRequest) (*metricscollector.ExportMetricsServiceResponse, error) {
	m.s.note("grpc metrics")
	return &metricscollector.ExportMetricsServiceResponse{}, nil
}

// emit makes a span, and a count in it, and has both sent.
func emit(t *testing.T, p *otelsetup.Providers) {
	t.Helper()
	work(t, p)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// work makes a span, and a count in it.
func work(t *testing.T, p *otelsetup.Providers) {
	t.Helper()
	ctx, span := p.TracerProvider.Tracer("test").Start(t.Context(), "span")
	counter, err := p.MeterProvider.Meter("test").Int64Counter("jobs")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(ctx, 1)
	span.End()
}
