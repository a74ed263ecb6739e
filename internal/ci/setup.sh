#!/usr/bin/env bash
# Installs what `make test` and `make e2e` need beside Go: a redis-server for the tests to start, promtool and a prometheus
# to try the alerts in, amtool, the Redis exporter whose metrics the dashboards show, a browser to look at the debug page,
# curl and Python to talk to the agent, and a C compiler for the race detector. With the argument java also what
# `make interop` needs: a JDK and Maven. Does nothing where all are there. Where it may not install, it says what to run and
# fails.
set -euo pipefail

packages=()
if ! command -v "${LOCKDOG_REDIS_SERVER:-redis-server}" >/dev/null; then
	[[ -z ${LOCKDOG_REDIS_SERVER:-} ]] || { echo "LOCKDOG_REDIS_SERVER names no program: $LOCKDOG_REDIS_SERVER" >&2; exit 1; }
	packages+=(redis-server)
fi
command -v promtool >/dev/null && command -v prometheus >/dev/null || packages+=(prometheus)
command -v amtool >/dev/null || packages+=(prometheus-alertmanager)
command -v prometheus-redis-exporter >/dev/null || packages+=(prometheus-redis-exporter)
command -v chromium >/dev/null || packages+=(chromium)
command -v curl >/dev/null || packages+=(curl)
command -v python3 >/dev/null || packages+=(python3)
command -v "$(go env CC)" >/dev/null || packages+=(gcc libc6-dev)
if [[ ${1:-} == java ]] && ! { command -v javac && command -v mvn; } >/dev/null; then
	packages+=(default-jdk-headless maven) # Maven alone brings no compiler
fi
((${#packages[@]})) || exit 0

by_hand="apt-get update && apt-get install -y --no-install-recommends ${packages[*]}"
give_up() {
	echo "missing: ${packages[*]}; $1. Run as root:  $by_hand" >&2
	exit 1
}

command -v apt-get >/dev/null || give_up "this is no Debian, so its own packages of these names are needed"
as_root=()
if ((EUID != 0)); then
	sudo -n true 2>/dev/null || give_up "installing needs root or a sudo that asks no password"
	as_root=(sudo -n)
fi

echo "installing ${packages[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${packages[@]}"

# The tests start their own servers. The services that came with the packages were not asked for.
for service in redis-server prometheus prometheus-alertmanager prometheus-redis-exporter; do
	if [[ " ${packages[*]} " == *" $service "* ]] && systemctl is-active --quiet "$service" 2>/dev/null; then
		"${as_root[@]}" systemctl disable --now "$service"
	fi
done
