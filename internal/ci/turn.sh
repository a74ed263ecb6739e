#!/usr/bin/env bash
# Starts a test binary for `go test -exec`, which builds and tests packages side by side: turn.sh BINARY [ARGUMENT...]. The tests of lock start
# many servers, and so run while no others do, except those that need no clock but a fake one: they give way to the others.
# As they mostly wait, more of them go on at a time.
set -euo pipefail

# A test binary with -race sleeps for a second at its end, for reports of goroutines that nobody waits for. goleak sees to these.
export GORACE="atexit_sleep_ms=0 ${GORACE:-}"
case $1 in
*/lock.test) mode=--exclusive; set -- "$@" -test.parallel=8 ;;
*/watchdog.test | */locktest.test | */sim.test) exec nice -n 5 "$@" ;;
*) mode=--shared ;;
esac
command -v flock >/dev/null || { echo "flock is missing. Run as root:  apt-get install -y util-linux" >&2; exit 1; }
exec flock --close "$mode" "$0" "$@"
