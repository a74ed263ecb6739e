#!/usr/bin/env bash
# Runs every fuzz target for a short while: fuzz.sh DURATION. A target that finds something leaves its input under
# testdata/fuzz, where the ordinary tests find it again.
set -euo pipefail

duration=${1:?usage: fuzz.sh DURATION, such as 5s}
# Looked for by text first: to build the tests of every package only to ask for targets takes a minute.
files=$(grep -rlE --include='*_test.go' '^func Fuzz' . || true)
packages=$(xargs -r dirname <<<"$files" | sort -u)
[[ -n $packages ]] || echo "no fuzz targets"
for package in $packages; do
	targets=$(go test -list '^Fuzz' "$package") # on a line of its own: in a for, a failure would go unnoticed
	for target in $(awk '/^Fuzz/' <<<"$targets"); do
		echo "fuzz $package $target $duration"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package"
	done
done
