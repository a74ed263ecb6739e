#!/usr/bin/env bash
# again.sh FILE FLAGS: runs what failed in a `go test -json` three times more, by itself, and says which tests were flaky.
#
# Most tests of Redis live in real time, by leases of seconds, and a machine that gives its processor to others for as long makes one in
# thousands red. Such a test passes when it is alone. What fails again is red; so are more than three, a race, a panic, and a package that
# failed without a test that did.
set -euo pipefail
json=$1
shift

failed() { sed -nE 's/.*"Action":"fail","Package":"([^"]*)"(,"Test":"([^"\/]*)")?,"Elapsed".*/\1 \3/p' "$json"; }

tests=$(failed | awk 'NF == 2')
if [ -z "$tests" ] || [ "$(wc -l <<<"$tests")" -gt 3 ]; then
	echo "failed tests: $(failed | awk 'NF == 2' | wc -l); only one, two or three are run again" >&2
	exit 1
fi
if [ "$(failed | awk '{print $1}' | sort -u)" != "$(awk '{print $1}' <<<"$tests" | sort -u)" ]; then
	echo "a package failed without a test that did" >&2
	exit 1
fi
if grep -qE '"Output":"(panic: |fatal error: |WARNING: DATA RACE)' "$json"; then
	echo "there was a race or a panic" >&2
	exit 1
fi
while read -r package test; do
	echo "== again, by itself: $test"
	go test "$@" -count=3 -run="^$test\$" "$package"
	echo "== FLAKY: $test failed among all others, and passed three times by itself"
done <<<"$tests"
