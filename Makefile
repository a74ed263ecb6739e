# What developers and CI run. Needs Go and, on Debian, nothing else: see internal/ci/setup.sh.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
# In the order written, and never at once: they all want every core.
.NOTPARALLEL:

MODULE    := github.com/lockdog/lockdog
# Of these at least LEAST percent of the statements have to be covered, by tests of any package.
COVERED   := lock watchdog telemetry
LEAST     := 90
FUZZTIME  := 3s
TIMEOUT   := 30m
# Tests wait for Redis and for leases more than for the processor. Compilers give way to them. What go vet says is the linter's to say.
TESTFLAGS := -race -vet=off -p=4 -parallel=6 -toolexec='nice -n 5' -exec=$(CURDIR)/internal/ci/turn.sh -shuffle=on -count=1 -timeout=$(TIMEOUT)
COVERFLAGS := -coverpkg=./lock/...,./watchdog/...,./telemetry/... -coverprofile=bin/coverage.out

.PHONY: help
help: ## show this
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

# With PROFILE=yes also what cover wants to know, which compiles everything once more. With FULL=yes the long forms: more random steps, more shapes.
PROFILE ?=
FULL    ?=
export LOCKDOG_FULL := $(FULL)
# A larger GOGC spares a seventh of the CPU that compilers and tests take.
.PHONY: test
test: export GOGC ?= 200
test: setup ## all tests but the comparison with peers, with the race detector
	@echo "== test"
	mkdir -p bin
	(cd loadtest && exec go test $(TESTFLAGS) . ./internal/...) & \
	go test $(TESTFLAGS) $(if $(PROFILE),$(COVERFLAGS)) ./... ./cmd/lockdog/... || failed=$$?; \
	wait $$! || failed=$$?; \
	exit $${failed:-0}

# Each part by itself, so that one that fails hides no other. Takes hours.
.PHONY: nightly
nightly: ## what is too long for .ci/run: the long forms of the tests, coverage, fuzzing, the soak, 300 runs of chaos, the comparison with peers, all servers
	$(MAKE) --keep-going nightly-test nightly-fuzz nightly-soak nightly-sim nightly-chaos nightly-peers nightly-servers

.PHONY: nightly-test nightly-fuzz nightly-soak nightly-sim nightly-chaos nightly-peers nightly-servers
nightly-test:
	$(MAKE) test cover PROFILE=yes FULL=yes TIMEOUT=2h
nightly-fuzz:
	$(MAKE) fuzz FUZZTIME=60s
nightly-soak:
	$(MAKE) soak
nightly-sim:
	$(MAKE) sim SIM_RUNS=30000 TIMEOUT=2h
nightly-chaos:
	$(MAKE) chaos CHAOS_RUNS=300
nightly-peers:
	$(MAKE) peers-check
nightly-servers:
	$(MAKE) servers

.PHONY: setup
setup: ## install the programs that the tests start, and a C compiler, if they are missing and we may
	@echo "== setup"
	internal/ci/setup.sh

.PHONY: lint
lint: bin/golangci-lint ## golangci-lint: go vet and more, with the import rules and the format
	@echo "== lint"
	bin/golangci-lint config verify
	bin/golangci-lint run ./... ./cmd/lockdog/... ./loadtest/...

.PHONY: fmt
fmt: bin/golangci-lint ## format the code as lint wants it
	bin/golangci-lint fmt

# The inputs that were ever found are played with the tests. Looking for more builds everything anew: CI does, `make test` doesn't.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@echo "== fuzz"
	internal/ci/fuzz.sh $(FUZZTIME)

.PHONY: cover
cover: bin/coverage.out ## what the last `make test PROFILE=yes` covered, or one now
	@echo "== cover"
	awk -v module=$(MODULE) -v need='$(COVERED)' -v least=$(LEAST) -f internal/ci/coverage.awk $<

bin/coverage.out:
	$(MAKE) test PROFILE=yes

# Longer where Jaeger is yet to be built. -v: they print what they measured.
E2E := go test -tags=e2e -v -count=1 -timeout=$(TIMEOUT) ./internal/e2e
.PHONY: e2e
e2e: setup ## the end-to-end test: two services, Redis, Prometheus and Jaeger, looked at from outside
	@echo "== e2e"
	internal/ci/jaeger.sh
	$(E2E) -skip='^TestSoak$$'

.PHONY: soak
soak: setup ## alerts by fault: two fleets of services for minutes, end to end
	@echo "== soak"
	internal/ci/jaeger.sh
	$(E2E) -run='^TestSoak$$'

# INTEROP_SECONDS is how long Go and Java contend: 30 by default.
.PHONY: interop
interop: ## share locks with the real Redisson: Go and Java, on one Redis and on a Cluster
	@echo "== interop"
	internal/ci/setup.sh java
	go test -tags=interop -race -parallel=6 -v -count=1 -timeout=$(TIMEOUT) ./internal/interop

.PHONY: mixin
mixin: bin/jsonnet ## render the rules, the dashboards and their Kubernetes objects from dashboards/mixin
	bin/jsonnet --string --create-output-dirs --multi dashboards dashboards/mixin/render.jsonnet

# What checks it imports much, which is why it is in the module of the tools.
.PHONY: mixin-check
mixin-check: setup bin/golangci-lint ## fail when what is committed is not what make mixin renders, or Kubernetes won't take it
	@echo "== mixin-check"
	cd internal/tools && export GOWORK=off && ../../bin/golangci-lint run && go test -race -vet=off -count=1 -timeout=$(TIMEOUT) ./...

# Each benchmark once, after a warm-up, which takes about a minute. The race detector lets a process sleep at its end.
.PHONY: peers-check
peers-check: setup ## a short run of the comparison with other lock libraries, with the race detector
	@echo "== peers-check"
	GORACE=atexit_sleep_ms=0 go test -race -vet=off -bench=. -skip=/callers=2048 -benchtime=1x -timeout=$(TIMEOUT) ./loadtest/peers

# 5 rounds of 2 s each take about half an hour. Nothing may run beside what is measured. The rounds are interleaved. What takes one
# caller is measured once more with everything on one CPU: there the names of benchmarks don't end in a number of CPUs.
PEERS_ROUNDS  ?= 5
PEERS_SECONDS ?= 2
PEERS := go test -run='^$$' -benchtime=$(PEERS_SECONDS)s -timeout=$(TIMEOUT) ./loadtest/peers
BENCHSTAT := bin/benchstat -confidence=0.9
.PHONY: peers
peers: setup bin/benchstat ## compare with other lock libraries, PEERS_ROUNDS times PEERS_SECONDS; benchstat prints the medians
	@echo "== peers"
	for round in $$(seq $(PEERS_ROUNDS)); do \
		$(PEERS) -bench=.; \
		taskset -c 0 $(PEERS) -bench='Distinct/callers=1/rtt=0s|Held'; \
	done | tee bin/peers.txt
	$(BENCHSTAT) -col='/peer@(lockdog floor floor-gate raw-evalsha redislock redsync rueidislock)' bin/peers.txt
	$(BENCHSTAT) -col='/peer@(lockdog lockdog-sdk lockdog-sdk+pool lockdog-loss lockdog+pool floor+pool redislock+pool redsync+pool)' bin/peers.txt

# SIM_SEED=s is the first seed. A thousand runs take less than two minutes on two cores. A larger GOGC spares CPU.
SIM_RUNS ?= 1000
SIM_SEED ?= 0
.PHONY: sim
sim: ## faults by the thousand, on real clients over miniredis, in fake time
	@echo "== sim"
	GOGC=400 go test -count=1 -timeout=$(TIMEOUT) ./internal/sim -sim.runs=$(SIM_RUNS) -sim.seed=$(SIM_SEED)

# Runs of the kept schedules, the fixed seeds 1, 2, 3... and one fresh one. CHAOS_RUNS=1 CHAOS_SEED=s makes the faults of seed s again.
# Each shape of Redis has its servers, and mostly waits: all six go on at a time. CHAOS_FLAGS, of the tests: -chaos.kind, -chaos.shape and
# -chaos.fault bound what is made up.
CHAOS_RUNS  ?= 100
CHAOS_SEED  ?=
CHAOS_LIMIT ?= 60m
CHAOS_FLAGS ?=
.PHONY: chaos
chaos: setup ## faults by the hundred, on real servers and clients: nothing held twice, nothing lost in silence
	@echo "== chaos"
	CHAOS_RUNS=$(CHAOS_RUNS) CHAOS_SEED=$(CHAOS_SEED) \
		go test -tags=chaos -race -parallel=6 -count=1 -timeout=$(CHAOS_LIMIT) -run='^TestChaos$$' -v ./internal/chaos $(CHAOS_FLAGS) | sed -u '/^=== /d'

.PHONY: chaos-short
chaos-short: ## chaos in its short form
	@$(MAKE) --no-print-directory chaos CHAOS_RUNS=12 CHAOS_LIMIT=6m

# Takes about ten minutes for each server, and prints a table of server and suite. servers-short is the part that goes by what a server answers.
SERVERS ?= installed redict-7.3 redis-8.0 redis-8 valkey-8.0 valkey-8.1 valkey-9
SUITES  ?= lock redistest interop chaos
.PHONY: servers
servers: ## the suites of tests on each server that people run
	@echo "== servers"
	internal/ci/suites.sh "$(SERVERS)" "$(SUITES)"

.PHONY: servers-short
servers-short: ## what goes by a server's answers, on the newest Redis and Valkey
	@$(MAKE) --no-print-directory servers SERVERS="redis-8 valkey-9" SUITES=short

# Static, and so for any Linux of that processor. grpcnotrace leaves out what makes the linker keep everything that is exported.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/arm64
.PHONY: dist
dist: ## the command lockdog for PLATFORMS, as programs that need nothing else
	@echo "== dist"
	mkdir -p bin/dist
	for platform in $(PLATFORMS); do \
		file=bin/dist/lockdog-$${platform/\//-}; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} \
			go build -tags=grpcnotrace -trimpath -ldflags='-s -w' -o $$file ./cmd/lockdog; \
		gzip -9 -k -f $$file; \
		ls -l $$file $$file.gz; \
	done

.PHONY: bench
bench: setup ## all benchmarks
	go test -run='^$$' -bench=. -benchmem ./... ./cmd/lockdog/...

# Asks vuln.go.dev, so it is no part of CI, which has to pass without. Not in internal/tools: with what golangci-lint wants of
# golang.org/x it needs a golang.org/x/telemetry that not every proxy has.
.PHONY: vuln
vuln: ## known vulnerabilities in what we import, by govulncheck; needs the network
	@echo "== vuln"
	go run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./... ./cmd/lockdog/...

.PHONY: tidy-check
tidy-check: ## fail when a go.mod or go.sum is not what the imports need
	@$(MAKE) --no-print-directory tidy DIFF=-diff

# The command's go.mod may not replace the module beside it, or `go install` refuses it. But tidy doesn't know go.work.
DIFF ?=
COMMAND := $(CURDIR)/bin/lockdog
.PHONY: tidy
tidy: ## bring each go.mod and go.sum up to date
	@echo "== tidy"
	mkdir -p bin
	go mod tidy $(DIFF)
	cd loadtest && go mod tidy $(DIFF)
	cp cmd/lockdog/go.mod $(COMMAND).mod
	cp cmd/lockdog/go.sum $(COMMAND).sum
	go mod edit -replace=$(MODULE)=../.. $(COMMAND).mod
	cd cmd/lockdog && go mod tidy $(DIFF) -modfile=$(COMMAND).mod
	go mod edit -dropreplace=$(MODULE) $(COMMAND).mod
	mv $(COMMAND).mod cmd/lockdog/go.mod
	mv $(COMMAND).sum cmd/lockdog/go.sum

# The tools have a module of their own, so that ours does not list what they need. Go's build cache makes the second
# build a matter of seconds.
bin/golangci-lint: TOOL := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/jsonnet: TOOL := github.com/google/go-jsonnet/cmd/jsonnet
bin/benchstat: TOOL := golang.org/x/perf/cmd/benchstat
bin/golangci-lint bin/jsonnet bin/benchstat: internal/tools/go.mod internal/tools/go.sum
	@echo "== build $(@F), which takes minutes the first time"
	GOWORK=off CGO_ENABLED=0 go build -C internal/tools -trimpath -ldflags='-s -w' -o $(CURDIR)/$@.$$$$ $(TOOL) && mv $@.$$$$ $@

.PHONY: clean
clean: ## remove what make built
	rm -rf bin internal/interop/java/target
