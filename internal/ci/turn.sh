#!/usr/bin/env bash
# Starts a test binary for go test -exec: turn.sh BINARY [ARGUMENT...]. Packages are built and tested side by side, but the tests of lock, whose
# leases of a second are renewed on real servers, wait until no others run, and others until they have ended.
set -euo pipefail

command -v flock >/dev/null || { echo "no flock: on Debian, apt-get install util-linux" >&2; exit 1; }
case $1 in
*/lock.test) mode=--exclusive ;;
*) mode=--shared ;;
esac
exec flock --close "$mode" "$0" "$@"
