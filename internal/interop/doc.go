// Package interop proves that lockdog and Redisson share locks: its tests, run by `make interop`, drive the real
// Redisson, in a JVM, beside lockdog, on a single server and on a Cluster. For each kind of lock that both have, and
// with either of the two as the holder, they assert who is refused, who is woken and how soon, what a watchdog keeps
// alive, what a crash frees, and that both report the same, as far as these apply to the kind. The tables kinds, ofKind
// and ofOne in the tests list the kinds and the assertions.
//
// The Java program is in the folder java. It calls Redisson as the tests say, line by line; see its Main for the
// protocol. The tests build it with Maven when its sources have changed.
//
// It needs Linux, a redis-server, a JDK of version 17 or newer, and Maven; what is missing fails the test. The first
// build downloads Redisson, later ones need no network. INTEROP_SECONDS says how long processes of both contend on the
// single server, and then on the Cluster: for all kinds together, 30 if unset. The build tag interop keeps it all out
// of `go test ./...`.
package interop
