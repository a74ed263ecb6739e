#!/usr/bin/env bash
# Runs test suites on servers, and prints a table of what came of them: suites.sh "SERVER..." "SUITE...". A server is one of servers.sh, or
# installed: the one of this system. A suite is lock, short, redistest, interop or chaos. What each printed is in bin/servers/SERVER.SUITE.log.
set -euo pipefail
cd "$(dirname "$0")/../.."

read -ra servers <<<"$1"
read -ra suites <<<"$2"

# What goes by what a server answers: the conformance of every kind in every shape, refusals, losses, failovers, clusters and their slots.
short='^Test(Conformance|Shapes|Refus|ACL|Loss|Cluster|Batch_|Dispatcher|MovingSlot|SlotMove|Demoted|StalePrimary|IncompleteCluster|ReleaseWhereSPublish|RWWithoutExpiry|MultiUndoes)'

run() {
	local flags=(-race -parallel=4 -count=1 -timeout=20m)
	case $1 in
	lock) go test "${flags[@]}" ./lock ./lock/internal/redisfail ./lock/internal/dispatch ./lock/internal/pubsub ;;
	short) go test "${flags[@]}" -run "$short" ./lock ./lock/internal/redisfail ./lock/internal/dispatch ;;
	redistest) go test "${flags[@]}" ./internal/redistest ;;
	interop) make --no-print-directory interop INTEROP_SECONDS=4 TIMEOUT=20m ;;
	chaos) make --no-print-directory chaos CHAOS_RUNS="${CHAOS_RUNS:-24}" CHAOS_LIMIT=20m ;;
	*) echo "no suite $1" >&2 && return 2 ;;
	esac
}

internal/ci/setup.sh
mkdir -p bin/servers
others=()
for server in "${servers[@]}"; do [[ $server == installed ]] || others+=("$server"); done
((!${#others[@]})) || internal/ci/servers.sh "${others[@]}"

table="| server |$(printf ' %s |' "${suites[@]}")"$'\n'"|---|$(printf -- '---|%.0s' "${suites[@]}")"
failed=0
for server in "${servers[@]}"; do
	export LOCKDOG_REDIS_SERVER=$PWD/bin/servers/$server/redis-server
	[[ $server != installed ]] || LOCKDOG_REDIS_SERVER=$(command -v redis-server)
	version=$("$LOCKDOG_REDIS_SERVER" --version)
	[[ $version =~ ^([A-Z][a-z]+).*\ v=([0-9.]+) ]] && version="${BASH_REMATCH[1]} ${BASH_REMATCH[2]}"
	row="| $version |"
	for suite in "${suites[@]}"; do
		log=bin/servers/$server.$suite.log
		echo "+ $suite on $version"
		if run "$suite" >"$log" 2>&1; then
			row+=" passes |"
		else
			failed=1
			# A test that failed as one inside it did is named by that one.
			names=$(sed -nE 's/^ *--- FAIL: ([^ ]+) .*/\1/p' "$log" | sort -u | awk '{ all[NR] = $0 } END {
				for (i = 1; i <= NR; i++) if (i == NR || index(all[i + 1], all[i] "/") != 1) printf "%s ", all[i] }')
			grep -E '^(panic:|# |FAIL\s)|^ *--- FAIL' "$log" | head -n 40 || true
			row+=" fails: ${names:-see $log} |"
		fi
	done
	table+=$'\n'$row
done
echo "$table"
exit $failed
