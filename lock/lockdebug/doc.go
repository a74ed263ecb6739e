// Package lockdebug is a page to mount beside pprof that answers, for this process: which locks are held and for how
// long, which leases are about to die, who waits for whom, what was lost lately and why, and where the trace is.
//
//	mux.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{
//		Clients:  []*lock.Client{locks},
//		TraceURL: "https://jaeger.example.com/trace/{trace_id}",
//	}))
//
// It only reads, sends nothing to Redis, and works without JavaScript and without anything fetched from elsewhere. It
// asks nobody who they are: like pprof, it belongs on a port that the public can't reach.
//
// What it shows is what the given clients know. The holder of a lock in another process shows up as the owner that
// somebody here waits for; see [lock.Mutex.Inspect] for the rest.
//
// A Multi or a Quorum is one entry, with its names or nodes below it: "2 of 3 nodes, needs 2" is degraded, a warning; when so few
// can be renewed that it will be lost, it is failing, and below what it needs it is lost. A node of a Quorum is shown also where its client
// isn't among those given.
//
// Names and owners may say who your customers are: Options.RedactName and Options.RedactOwner replace them.
//
// What follows is longer than a screen, as the whole format of the JSON stands here.
//
// # Queries
//
// They apply to the page and to the JSON. What is out of range is answered with 400 and a text that says what is allowed;
// an empty value is as good as none.
//
//	q        only what has this text in its name, kind, node, group, owner, trace id, or the owner it waits for; case doesn't matter
//	group    only this group
//	state    held, failing, expiring, degraded, canceled, waiting, lost or closed
//	sort     trouble (default), age, remaining or name
//	page     1 to 1000000; every list is cut into pages of the same size
//	per      rows of each list on a page, 1 to 1000; default 100
//	refresh  off, or after how many seconds the page loads itself again, 1 to 3600; default 5
//	format   html or json; default: what the Accept header prefers, html if it has no preference
//
// In the order of trouble, leases that are failing, expiring or lost come first, those with the least time left before the others; then those
// that are degraded; then those that are canceled; then the rest, the oldest first. Who waits is listed by age, what has ended from the last
// on, unless it is sorted by name.
//
// # JSON
//
// One object. Times are RFC 3339 in UTC, durations are seconds with a fraction, and fields are left out where there is
// nothing to say, but for numbers and lists that all objects of their kind have.
//
//	time        when this was seen
//	host, pid   of the process
//	clients     how many clients are shown
//	warnings    texts: what is wrong with Options
//	summary     of everything, whatever the query says, a Multi or a Quorum counted once:
//	  held, waiting                         locks held; calls of Lock that wait
//	  failing, expiring, degraded, canceled of those held: see below; with the canceled, those lost that are to be released yet
//	  lost_last_hour, canceled_last_hour    leases that ended so, the canceled with the closed
//	  oldest_hold_seconds, oldest_hold_name of the oldest lock held
//	  ended_since                           from when on the ended are all known: an hour ago, or later
//	page, per_page
//	held, waiting, ended   objects, each with
//	  total       how many match the query
//	  pages       on how many pages, at least 1
//	  items       those of this page
//
// Every item has name, kind, group, state, owner, since, age_seconds (since then; of the ended: up to their end), and
// node (the server where it lives, as an address; not of a Multi or a Quorum), token, trace_id and trace_url if there are such. The others
// are, by list:
//
//	held     state is held; canceled: its Context has ended, and it is renewed no more; releasing; or lost: a Multi or a Quorum
//	         that is to be released yet
//	  failing             true: the last renewal failed; of a Quorum, at so many nodes that the others are no majority
//	  expiring            true: less than a fifth of the lease is left
//	  degraded            true: a Multi or a Quorum that has lost a member, never got one, or can't renew one
//	  lease_seconds       the whole lease
//	  remaining_seconds   for how long it is trusted yet; negative when that is over, and not yet noticed
//	  deadline            until when it is trusted
//	  next_renewal        none if it is canceled, or a fixed lease
//	  last_error          of the last renewal
//	  last_error_at       when that was
//	  failing_since       since when every renewal has failed
//	  failing_seconds     how long that is
//	  reason              why it is canceled: context, max_hold, heartbeat, closed
//	  waiters             how many wait for it, in these clients
//	waiting  state is waiting; owner is the one it will have
//	  waits_for           the owner of the lock, when last seen
//	  last_error          of the last try to take it, and, as above, last_error_at, failing_since and failing_seconds. Whoever is first
//	                      in line tries for all
//	ended    within the last hour; state is lost, canceled, closed (the client was), or degraded: a Quorum was held on without the members
//	         that were lost. Ordinary releases are not listed
//	  ended               when
//	  why                 lost: missing, taken, expired, unreachable, stalled, forced; else the reason
//	  error               what Lease.Err says
//
// A Multi or a Quorum also has these; of the ended, only members, those that have ended, with ended, why and error each:
//
//	have                  how many of its members are held
//	need                  how many it can't be without
//	members               by name, or node: name, node, state, owner, token, and as above the fields of a lease and of its errors. Besides
//	                      those above, state is waiting, lost, or absent: there is no lease; last_error says why, if that is known
//
// A client remembers the last 1,000 leases that ended otherwise than by a release. Where that does not reach back an
// hour, the page says so, and ended_since says how far it does.
//
// An answer other than 200 is an object with the field error.
package lockdebug
