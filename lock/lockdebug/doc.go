// Package lockdebug is a debug page, like pprof's, for the locks of this process: which are held and for how long, which
// leases are about to expire, who waits for whom, what was lost recently and why, and where the traces are.
//
//	http.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{
//		Clients:  []*lock.Client{locks},
//		TraceURL: "https://jaeger.example.com/trace/{trace_id}",
//	}))
//
// It also serves the contention profile: see below.
//
// It is read-only, and sends nothing to Redis unless Options.Fleet is given. It has no authentication: like pprof, it belongs on a private port.
//
// What it serves is JSON, indented for people: `curl localhost:6060/debug/locks` shows all there is. A browser, which asks for HTML, gets
// a page that loads that JSON from where it comes from itself, and shows it. The page needs JavaScript and no other resource; where there
// is none, as in w3m, it links to the JSON. Its Content-Security-Policy allows that script alone, which makes text of whatever it is given.
//
// It shows what the given clients know. A holder in another process is shown only as the owner that a waiter of this process
// waits for; see [lock.Mutex.Inspect] for more.
//
// A Multi or a Quorum is one entry, with its names or nodes below it: "2 of 3 nodes, needs 2" is degraded, a warning. If so few
// members can be renewed that it will be lost, it is failing; with fewer than it needs it is lost. A node of a Quorum is shown even
// if its client isn't given.
//
// Names and owners may identify customers: Options.RedactName and Options.RedactOwner replace them.
//
// # All processes
//
// With Options.Fleet, a [fleet.Reader], the page also shows who waits for whom in all processes, and the deadlocks, as
// [fleet.Reader.Graph] finds them:
//
//	reader, err := fleet.New(rdb, "")
//	if err != nil {
//		return err
//	}
//	http.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{
//		Clients: []*lock.Client{locks},
//		Fleet:   reader,
//	}))
//
// Each response with the JSON reads that from Redis. If it takes longer than 2 s, or fails, the page says so, and shows the rest. Requests at
// the same time share one reading. Up to 100 waits are shown, those in deadlocks first: as a tree, like that of `lockdog graph`, in which
// below each lock is who waits for it, and below that which awaited locks they hold meanwhile. Of the query, only state matters to it: it
// is there if waits are.
//
// # Queries
//
// Parameters apply to the page and to the JSON. The response to an invalid value is 400; the JSON, and so the page, names what is allowed.
// An empty value counts as none.
//
//	q        only entries with this text in name, kind, node, group, owner, trace id, or the owner waited for; case doesn't matter
//	group    only this group
//	state    held, failing, expiring, degraded, canceled, waiting, lost or closed
//	sort     trouble (default), age, remaining or name
//	page     1 to 1000000, of every list
//	per      rows of each list on a page, 1 to 1000; default 100
//	refresh  seconds after which the page loads the JSON again, 1 to 3600, or off; default 5
//	seconds  with the profile: what happens in so many seconds from now on, 1 to 300, and less than the WriteTimeout of the server
//	format   html, json or profile; default: what the Accept header prefers, json if it has no preference, as that of curl
//
// Sorted by trouble, leases that are failing, expiring or lost come first, those with the least time left before the others; then
// degraded ones; then canceled ones; then the rest, the oldest first. Waiters are always sorted by age or name, and ended leases by
// name or the last first.
//
// # JSON
//
// One object. Times are RFC 3339 in UTC, durations are seconds with a fraction. Fields without a value are omitted, except
// numbers and lists that all objects of their kind have.
//
//	time        of the snapshot
//	host, pid   of the process
//	clients     how many clients are shown
//	warnings    texts: what is wrong with Options
//	summary     of everything, whatever the query; a Multi or a Quorum counts once:
//	  held, waiting                         locks held; calls of Lock that wait
//	  failing, expiring, degraded, canceled of those held: see below; canceled includes those lost but not released
//	  lost_last_hour, canceled_last_hour    leases that ended so; canceled includes closed
//	  oldest_hold_seconds, oldest_hold_name of the oldest lock held
//	  ended_since                           since when all ended leases are known: an hour ago, or later
//	groups      those of all that is held, awaited or has ended, whatever the query
//	page, per_page
//	graph       only with Options.Fleet, see below
//	held, waiting, ended   objects, each with
//	  total       how many match the query
//	  pages       on how many pages, at least 1
//	  items       of this page
//
// Every item has name, kind, group, state, owner, since, age_seconds (since then, until now or its end), and if known
// node (the address of its server; not of a Multi or a Quorum), token, trace_id and trace_url. The other fields, by list:
//
//	held     state is held; canceled: its Context has ended, and it isn't released; releasing; or lost: a Multi or a Quorum that isn't
//	         released
//	  failing             true: the last renewal failed; of a Quorum, at so many nodes that the rest is no majority
//	  expiring            true: less than a fifth of the lease is left
//	  degraded            true: a Multi or a Quorum that has lost a member, never got one, or can't renew one
//	  lease_seconds       the whole lease
//	  remaining_seconds   until the deadline; negative if that is over but not detected
//	  deadline            until then the process trusts the lease
//	  next_renewal        none if it is a fixed lease, is being released, or was canceled (but for reason closed)
//	  last_error          of the last renewal
//	  last_error_at       time of it
//	  failing_since       since when every renewal has failed
//	  failing_seconds     time since then
//	  reason              why it was canceled: context, max_hold, heartbeat, closed
//	  waiters             how many wait for it, in these clients
//	waiting  state is waiting; owner is the future one
//	  waits_for           the owner of the lock, when last seen
//	  last_error          of the last attempt to acquire it, with last_error_at, failing_since and failing_seconds as above. The first
//	                      waiter of a queue makes the attempts for all
//	ended    within the last hour; state is lost, canceled, closed (the client was closed), or degraded: a Quorum was held without
//	         the members that were lost. Ordinary releases are not listed
//	  ended               time of the end
//	  why                 the cause of a loss: missing, taken, expired, unreachable, stalled, forced; otherwise the reason
//	  error               that of Lease.Err
//
// A Multi or a Quorum also has these; if it has ended, only members, those that have ended, each with ended, why and error:
//
//	have                  how many of its members are held
//	need                  how many it needs
//	members               by name, or node: name, node, state, owner, token, and as above the fields of a lease and of its errors. Besides
//	                      the states above there is absent, no lease; last_error has the cause, if known
//
// The graph has
//
//	time         when it was read, by Redis's clock
//	error        why it couldn't be read, or not all of it
//	total        how many waits were found
//	more         true: there are more
//	unreadable   how many records of waits can't be understood
//	cycles       deadlocks, at most 10: lists of name, of the lock that is awaited, owner, the future one, client_id, since, age_seconds, trace_id, trace_url,
//	             holds_name and holds_owner. Each waits for the lease that the next one holds, and the last for that of the first
//	waits        at most 100, those in deadlocks first, then the longest first: name, kind, owner, client_id, since, age_seconds, trace_id and trace_url as above, and
//	  deadlock   true: it is part of one
//	  held       how many hold the lock
//	  held_by    up to 5 of them: owner, client_id, redisson, since, age_seconds, trace_id, trace_url
//	  holds      the leases that the wait carries: name, owner, token
//
// With RedactOwner there is no client_id, as owners begin with it.
//
// A client remembers the last 1,000 leases that were lost, canceled or closed. If these don't reach back an hour, the page says so,
// and ended_since has the time.
//
// The busiest locks are those with one name, of this process, in about the last minute, at most 100. Figures are estimates from samples: see
// [lock.WithContentionProfile]. q and group apply to them.
//
//	busiest  a list of objects, those that caused most waiting first:
//	  name, kind, group
//	  window_seconds        what the other figures are of
//	  waited_seconds        time that this process waited for the lock, all waiters together
//	  longest_wait_seconds  of a recorded wait
//	  utilization           share of the time that this process held it, at most 1; of a semaphore and of readers, how many held it on average
//	                        (of few, long holds it is a bad estimate: see lock.ContentionName)
//	  grants_per_second
//	  samples               recorded grants and waits: of a few the other figures are no more than a guess
//	  held_by, awaited_by   the line of code whose holds made others of this process wait most, and the one that waited most: "function file:line"
//
// # Profile
//
// With format=profile, or at a path that ends with /profile, the response is the contention profile of the clients as package lockprofile writes it:
//
//	page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{locks}})
//	http.Handle("/debug/locks", page)
//	http.Handle("/debug/locks/profile", page)
//
// `go tool pprof http://localhost:6060/debug/locks/profile` reads it. It has groups of locks in it, and no names.
//
// A response other than 200 is an object with the field error, unless it is the page.
package lockdebug
