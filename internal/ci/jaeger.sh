#!/usr/bin/env bash
# Builds the Jaeger that the end-to-end test looks at traces with, from the Go module proxy, into bin, which git ignores:
# bin/jaeger points to the version wanted. The first time takes minutes; after that nothing is done.
set -euo pipefail
cd "$(dirname "$0")/../.."

module=github.com/jaegertracing/jaeger
version=v1.76.0 # cmd/jaeger in it is Jaeger 2
binary=jaeger-$version

if [[ ! -x bin/$binary ]]; then
	echo "building Jaeger $version, which takes minutes the first time"
	# Not go install, which refuses modules with a replace directive.
	src=$(go mod download -json "$module@$version" | sed -nE 's/^\s*"Dir": "(.*)",?$/\1/p')
	[[ -n $src ]] || { echo "no source of $module@$version" >&2; exit 1; }
	mkdir -p bin
	CGO_ENABLED=0 nice -n 10 go build -C "$src" -trimpath -ldflags='-s -w' -o "$PWD/bin/$binary.new" ./cmd/jaeger
	mv "bin/$binary.new" "bin/$binary"
fi
ln -sfn "$binary" bin/jaeger
