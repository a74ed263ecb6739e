#!/usr/bin/env bash
# Unpacks the servers that people run beside this system's redis-server into bin/servers, which git ignores: servers.sh [NAME...].
# bin/servers/NAME/redis-server is then one to name in LOCKDOG_REDIS_SERVER. Nothing is installed. They come from other releases of
# Debian, by the mirror that apt uses here, with the C library that they were built for. What is there already stays. Redict 7.3 is
# Redis 7.2 as Debian has it.
set -euo pipefail
cd "$(dirname "$0")/../.."

# name, release of Debian, package, start of its version
known='valkey-8.0 bookworm-backports valkey-tools 8.0
valkey-8.1 trixie valkey-tools 8.1
valkey-9 sid valkey-tools 9.
redict-7.3 sid redict-tools 7.3
redis-8.0 trixie redis-tools 5:8.0
redis-8 sid redis-tools 5:8.'
# What those of trixie and sid load, all from sid: the newest of each serves the older ones, too.
libraries=(libc6 libatomic1 libgcc-s1 libstdc++6 libjemalloc2 liblzf1 liblua5.4-0 libhiredict1.3.1 libssl3t64 libzstd1 zlib1g libcap2 libsystemd0)

home=$PWD/bin/servers
apt=$home/.apt

# updated fetches apt's package lists of the other releases, once, into a folder of our own: the system's lists stay as they are.
updated() {
	[[ ! -e $apt/updated ]] || return 0
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || {
		echo "other servers are unpacked from Debian's packages: run this on Debian, or set LOCKDOG_REDIS_SERVER to a server that you have" >&2
		exit 1
	}
	mkdir -p "$apt"/{lists/partial,cache/archives/partial,sources}
	local mirror release
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n1)
	[[ -n $mirror ]] || { echo "apt knows no mirror here: run apt-get update" >&2; exit 1; }
	for release in bookworm-backports trixie sid; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror%/} $release main"
	done >"$apt/sources/debian.list"
	elsewhere update -qq
	touch "$apt/updated"
}

# elsewhere is apt-get for the other releases.
elsewhere() {
	apt-get -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o Dir::Etc::sourcelist=/dev/null \
		-o Dir::Etc::sourceparts="$apt/sources" -o APT::Sandbox::User="$(id -un)" "$@"
}

# unpack PACKAGE RELEASE FOLDER prints the package's version.
unpack() {
	local box
	box=$(mktemp -d)
	(cd "$box" && elsewhere download -qq "$1/$2" >&2)
	mkdir -p "$3"
	dpkg-deb -x "$box"/*.deb "$3"
	dpkg-deb -f "$box"/*.deb Version
	rm -r "$box"
}

# program NAME COMMAND writes the two programs that start a server: by its own name it knows which of the two it is.
program() {
	for part in server sentinel; do
		printf '#!/usr/bin/env bash\n%s "$@"\n' "${2//PART/redis-$part}" >"$home/$1/redis-$part"
		chmod +x "$home/$1/redis-$part"
	done
}

one() {
	local name=$1 release=$2 package=$3 want=$4 root=$home/$1/root version command
	rm -rf "${home:?}/$name"
	mkdir -p "$root"
	updated
	version=$(unpack "$package" "$release" "$root")
	[[ $version == "$want"* ]] || { echo "$name: $release has $package $version by now, not $want" >&2; exit 1; }
	command=$(ls "$root"/usr/bin/*-check-rdb) # one program in all of its roles
	if [[ $release == bookworm-backports ]]; then
		program "$name" "exec -a PART '$command'"
		return
	fi
	if [[ ! -e $home/.libraries/complete ]]; then
		for library in "${libraries[@]}"; do unpack "$library" sid "$home/.libraries" >/dev/null; done
		touch "$home/.libraries/complete"
	fi
	local folder
	folder=$(echo "$home"/.libraries/usr/lib/*-linux-gnu)
	program "$name" "exec '$(echo "$folder"/ld-linux-*.so.*)' --argv0 PART --library-path '$folder' '$command'"
}

for wanted in "${@:-all}"; do
	grep -qE "^$wanted " <<<"$known" || [[ $wanted == all ]] || {
		echo "no server $wanted is known; there are: $(cut -d' ' -f1 <<<"$known" | xargs)" >&2
		exit 2
	}
done
mkdir -p "$home"
while read -r name release package want; do
	[[ $# == 0 || " $* " == *" $name "* ]] || continue
	if ! "$home/$name/redis-server" --version >/dev/null 2>&1; then one "$name" "$release" "$package" "$want"; fi
	echo "$name: $("$home/$name/redis-server" --version)"
done <<<"$known"
