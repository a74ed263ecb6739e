// Package lockdebug serves a debug page, like pprof's, for the locks of this process: which are held and for how long,
// which leases are about to expire, who waits for whom, what was lost recently and why, and links to the traces.
//
//	http.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{
//		Clients:  []*lock.Client{locks},
//		TraceURL: "https://jaeger.example.com/trace/{trace_id}",
//	}))
//
// It also serves the contention profile: see below.
//
// It is read-only, and sends nothing to Redis unless Options.Fleet is set. It has no authentication: serve it on a
// private port, like pprof.
//
// It serves indented JSON: `curl localhost:6060/debug/locks` shows all lists, up to 100 rows of each. A browser, which
// asks for HTML, gets a page that loads that JSON from its own URL and shows it. The page needs JavaScript and no other
// resource. A browser without JavaScript, such as w3m, shows a link to the JSON. The page's Content-Security-Policy
// allows only its own script, and that script shows all data as text.
//
// It shows what the given clients know. A holder in another process is shown only as the owner that a waiter of this
// process waits for. For more about a holder, use [lock.Mutex.Inspect].
//
// A Multi or a Quorum is one entry, with its names or nodes below it. A Quorum with "2 of 3 nodes, needs 2" is
// degraded, a warning. A Multi or a Quorum is failing if it can renew fewer members than it needs, and lost if it has
// fewer than it needs. A node of a Quorum is shown even if its client isn't given.
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
// For each response with the JSON, the graph is read from Redis. If that fails or takes longer than 2 s, the page says
// so, and shows the rest. Concurrent requests share one reading. At most 100 waits are shown, those in deadlocks first.
// The page shows them as a tree, like `lockdog graph`: below each lock are its waiters, and below each waiter the
// awaited locks that it holds. Of the query, only state applies to the graph: the graph is omitted if state excludes
// waits.
//
// # Queries
//
// Parameters apply to the page and to the JSON. An invalid value gives status 400, and an error that names the allowed
// values. An empty value means none.
//
//	q        only entries with this text in name, kind, node, group, owner, trace id, or the awaited owner; ignores
//	         case
//	group    only this group
//	state    held, failing, expiring, degraded, canceled, waiting, lost or closed
//	sort     trouble (default), age, remaining or name
//	page     of each list, 1 to 1000000; default 1
//	per      rows of each list on a page, 1 to 1000; default 100
//	refresh  seconds after which the page loads the JSON again, 1 to 3600, or off; default 5
//	seconds  with the profile: how long to record, from now on, 1 to 300, and less than the server's WriteTimeout;
//	         default: everything since the clients were made
//	format   html, json or profile; default: as the Accept header prefers; json if it has no preference, like curl's
//
// Sorting by trouble puts leases first that are failing, expiring or lost, then degraded ones, then canceled ones, each
// with the least remaining time first; then the rest, oldest first. Waiters are always sorted by age or name, and ended
// leases by name or latest end first.
//
// # JSON
//
// The JSON is one object. Times are RFC 3339 in UTC, durations are seconds with a fraction. Fields without a value are
// omitted, except numbers and lists that every object of the kind has.
//
//	time        of the snapshot
//	host, pid   of the process
//	clients     how many clients are shown
//	warnings    texts: what is wrong with Options
//	summary     independent of the query; a Multi or a Quorum counts once:
//	  held, waiting                         locks held; calls that wait
//	  failing, expiring, degraded, canceled of those held: see below; canceled includes those lost but not released
//	  lost_last_hour, canceled_last_hour    leases that ended so; canceled includes closed
//	  oldest_hold_seconds, oldest_hold_name of the lock that has been held longest
//	  ended_since                           ended leases are complete since then: an hour ago, or later
//	groups      of everything held, awaited or ended; independent of the query
//	page, per_page
//	graph       only with Options.Fleet, see below
//	held, waiting, ended   objects, each with
//	  total       entries that match the query
//	  pages       number of pages, at least 1
//	  items       of this page
//
// Every item has name, kind, group, state, since, age_seconds (from since until now, or until its end). If known, it
// also has owner, node (the address of its server; not for a Multi or a Quorum), token, trace_id and trace_url. The
// other fields depend on the list:
//
//	held     state is held; canceled: its Context has ended, but it isn't released; releasing; or lost: a Multi or a
//	         Quorum that isn't released
//	  failing             true: the last renewal failed; for a Quorum: at so many nodes that the others are no
//	                      majority
//	  expiring            true: less than a fifth of the lease is left, and it is older than half a lease
//	  degraded            true: a Multi or a Quorum that has lost a member, never got one, or can't renew one
//	  lease_seconds       the whole lease
//	  remaining_seconds   until the deadline; negative if the deadline is past: the end isn't detected yet, or state
//	                      is lost
//	  deadline            until then the process trusts the lease
//	  next_renewal        absent for a lease that is fixed, being released, or canceled for another reason than closed
//	  last_error          of the last renewal
//	  last_error_at       time of it
//	  failing_since       since then every renewal has failed
//	  failing_seconds     time since then
//	  reason              why it was canceled: context, max_hold, heartbeat, closed
//	  waiters             number of waiters for it in these clients
//	waiting  state is waiting; owner is the one that the lock will have
//	  waits_for           the owner that the lock had when last seen
//	  last_error          of the last attempt to acquire it, with last_error_at, failing_since and failing_seconds as
//	                      above. As a rule the first waiter of a queue makes the attempts for all
//	ended    within the last hour; state is lost, canceled, closed (the client was closed), or degraded: a Quorum that
//	         was still held, or was released, without the members that had ended. Ordinary releases aren't listed
//	  ended               time of the end
//	  why                 the cause of a loss: missing, taken, expired, unreachable, stalled, forced; otherwise the
//	                      reason
//	  error               of Lease.Err
//
// A Multi or a Quorum also has these. If it has ended, it has only members: those that have ended, each with ended, why
// and error.
//
//	have                  how many of its members are held
//	need                  how many it needs
//	members               one per name or node: name, node, state, owner, token, and the fields of a lease and of its
//	                      errors as above. The state absent means no lease; then last_error has the cause, if known
//
// The graph has
//
//	time         of the reading, by Redis's clock
//	error        why it couldn't be read, or is incomplete
//	total        number of waits found
//	more         true: Redis has more waits
//	unreadable   number of records of waits that can't be parsed or aren't their client's
//	cycles       deadlocks, at most 10: lists of waits, each for the lease that the next one holds, the last for that
//	             of the first. name is the awaited lock, owner the one that it will have; client_id, since,
//	             age_seconds, trace_id, trace_url; holds_name and holds_owner are of the lease that the previous wait
//	             waits for
//	waits        at most 100, those in deadlocks first, then longest first: name, kind, owner, client_id, since,
//	             age_seconds, trace_id and trace_url as above, and
//	  deadlock   true: it is part of a deadlock
//	  held       number of holders of the lock
//	  held_by    up to 5 of them: owner, client_id, redisson, since, age_seconds, trace_id, trace_url
//	  holds      the leases that the wait carries: name, owner, token
//
// With RedactOwner there is no client_id, because owners begin with it.
//
// A client remembers the last 1,000 leases that were lost, canceled or closed. If these don't reach back an hour, the
// page says so, and ended_since has the time.
//
// The list busiest has the locks with most waiting in about the last minute, at most 100. A lock that several clients
// know has an entry for each. The figures are estimates from samples: see [lock.WithContentionProfile]. Of the query, q
// and group apply to this list.
//
//	busiest  a list of objects, most waiting time first:
//	  name, kind, group
//	  window_seconds        length of the time that the other figures are for
//	  waited_seconds        time that the client waited for the lock, all waiters together
//	  longest_wait_seconds  of a recorded wait
//	  utilization           share of the time that the client held it, at most 1; for a semaphore and for readers,
//	                        how many held it on average (inaccurate for few, long holds: see lock.ContentionName)
//	  grants_per_second
//	  samples               recorded grants and waits: with few of them the other figures are only a guess
//	  held_by               a line of code whose holds made others wait, as "function file:line": one that does so
//	                        now, otherwise usually the one that did most
//	  awaited_by            a line of code that waited, chosen in the same way
//
// # Profile
//
// With format=profile, or without format at a path that ends with /profile, the response is the clients' contention
// profile in the format of package lockprofile:
//
//	page := lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{locks}})
//	http.Handle("/debug/locks", page)
//	http.Handle("/debug/locks/profile", page)
//
// `go tool pprof http://localhost:6060/debug/locks/profile` reads it. It contains groups of locks, and no names.
//
// A response with another status than 200 is an object with the field error, unless it is the page.
package lockdebug
