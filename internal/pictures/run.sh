#!/usr/bin/env bash
# Makes the pictures of the README from a real run, in MINUTES (6 by default): two instances of examples/orders contend for orders and
# reports, one call that renews in ten fails, and halfway through Redis stands still for 12 s.
#
#	internal/pictures/run.sh
#
# It needs redis-server, prometheus and bin/jaeger (internal/ci/jaeger.sh). The trace is drawn by the program beside this. The
# dashboard is drawn where GRAFVIEW names a program that does it, as GRAFVIEW DASHBOARD.json OUT.png PROMETHEUS_URL FROM SIZE;
# else Prometheus stays up until Enter is pressed, for a Grafana of yours to look at.
set -euo pipefail
cd "$(dirname "$0")/../.."
minutes=${MINUTES:-6} base=${PORT:-21700} out=$PWD/dashboards/pictures
redis=$base prom=$((base + 1)) a=$((base + 2)) b=$((base + 3)) query=$((base + 4)) grpc=$((base + 5)) otlp=$((base + 6)) health=$((base + 7))

dir=$(mktemp -d)
pids=()
stop() {
	for pid in "${pids[@]}"; do kill -CONT "$pid" 2>/dev/null || true; kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf "$dir"
}
trap stop EXIT
launch() { "$@" >>"$dir/log" 2>&1 & pids+=($!); }

cat >"$dir/jaeger.yaml" <<YAML
service:
  extensions: [jaeger_storage, jaeger_query, healthcheckv2]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry: {metrics: {level: none}, logs: {level: warn}}
extensions:
  jaeger_query: {storage: {traces: memory}, enable_tracing: false, http: {endpoint: "127.0.0.1:$query"}, grpc: {endpoint: "127.0.0.1:$grpc"}}
  jaeger_storage: {backends: {memory: {memory: {max_traces: 50000}}}}
  healthcheckv2: {use_v2: true, http: {endpoint: "127.0.0.1:$health"}}
receivers:
  otlp: {protocols: {http: {endpoint: "127.0.0.1:$otlp"}}}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
YAML
cat >"$dir/prometheus.yaml" <<YAML
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: [$PWD/dashboards/prometheus/*.yaml]
scrape_configs: [{job_name: orders, static_configs: [{targets: ["127.0.0.1:$a", "127.0.0.1:$b"]}]}]
YAML

launch redis-server --port "$redis" --bind 127.0.0.1 --save "" --dir "$dir"
server=${pids[0]}
launch bin/jaeger --config "$dir/jaeger.yaml"
launch prometheus --config.file="$dir/prometheus.yaml" --storage.tsdb.path="$dir/data" --web.listen-address="127.0.0.1:$prom" \
	--enable-feature=exemplar-storage
go build -o "$dir/orders" ./examples/orders
for addr in 127.0.0.1:$a 127.0.0.1:$b; do
	launch env OTEL_BSP_SCHEDULE_DELAY=500 "$dir/orders" -addr "$addr" -redis "127.0.0.1:$redis" -otlp "http://127.0.0.1:$otlp" \
		-load 25 -peers "http://127.0.0.1:$a,http://127.0.0.1:$b" -workers 8 -lease 9s -hold 20s -chaos 0.1
done

half=$((minutes * 30))
sleep "$half"
kill -STOP "$server"
sleep 12
kill -CONT "$server"
sleep $((half - 12))

mkdir -p "$out"
go run ./internal/pictures -jaeger "http://127.0.0.1:$query" -out "$out/trace.svg"
if [[ -n ${GRAFVIEW:-} ]]; then
	"$GRAFVIEW" dashboards/grafana/lockdog-overview.json "$dir/overview.png" "http://127.0.0.1:$prom" "now-${minutes}m" 1500,1006
	go run ./internal/pictures -png "$dir/overview.png" -out "$out/overview.png"
else
	read -rp "Prometheus is at http://127.0.0.1:$prom; press Enter to stop all " || true
fi
