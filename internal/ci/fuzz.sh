#!/usr/bin/env bash
# Runs every fuzz target for a short while: fuzz.sh DURATION. A target that finds something leaves its input under
# testdata/fuzz, where the ordinary tests find it again.
set -euo pipefail

duration=${1:?usage: fuzz.sh DURATION, such as 5s}
# Looked for by text first: to build the tests of every package only to ask for targets takes a minute.
files=$(grep -rlE --include='*_test.go' '^func Fuzz' . || true)
packages=$(xargs -r dirname <<<"$files" | sort -u)
[[ -n $packages ]] || echo "no fuzz targets"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# once fuzzes a target, from within its folder, as that may be of another module. Go's engine sometimes calls the end of its own time a failure, without an input that failed: then it is asked again.
once() {
	go test -C "$1" -run '^$' -fuzz "^$2\$" -fuzztime "$duration" . 2>&1 | tee "$log"
}

for package in $packages; do
	targets=$(go test -C "$package" -list '^Fuzz' .) # on a line of its own: in a for, a failure would go unnoticed
	for target in $(awk '/^Fuzz/' <<<"$targets"); do
		echo "fuzz $package $target $duration"
		once "$package" "$target" || {
			if ! grep -qx '    context deadline exceeded' "$log" || grep -q 'Failing input' "$log"; then exit 1; fi
			once "$package" "$target"
		}
	done
done
