# Prints the coverage of each package in a profile of `go test -coverprofile`, and fails when one of the packages
# named in -v need="lock watchdog ..." is below -v least=PERCENT or not there. The profile lists a block once for
# every test binary that knows it; it is covered when any of them ran it.
FNR == 1 { next } # mode:
{
	block = $1
	statements[block] = $2
	if ($3 > 0) hit[block] = 1
}
END {
	for (block in statements) {
		package = block
		sub(/\/[^\/]*$/, "", package)
		total[package] += statements[block]
		covered[package] += statements[block] * (block in hit)
	}
	count = split(need, names, " ")
	for (i = 1; i <= count; i++) {
		required[module "/" names[i]] = 1
		if (!(module "/" names[i] in total)) {
			printf "coverage: nothing known of %s\n", names[i]
			failed = 1
		}
	}
	for (package in total) {
		percent = 100 * covered[package] / total[package]
		verdict = ""
		if (package in required && percent < least) {
			verdict = sprintf("  below %d%%", least)
			failed = 1
		}
		printf "coverage: %5.1f%% %s%s\n", percent, package, verdict | "sort -k3"
	}
	close("sort -k3")
	exit failed
}
