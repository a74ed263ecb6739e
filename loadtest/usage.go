package main

const usage = `loadtest measures what renewing locks costs Redis: how many calls, how much CPU time and network N watched locks add, and what
that does to everybody else. It starts a redis-server of its own, and real client processes that hold the locks.

usage: go run ./loadtest [flags]

Modes, measured in turn, round after round, so that what changes on the machine changes for all:
  none      locks are held and not renewed: what the others are compared with
  per-lock  the classic watchdog, as Redisson had it and most Go code does: a ticker and an EVALSHA for each lock, every third of the
            lease after it was taken
  batched   lockdog with its default options
  redisson  the real org.redisson client with its own batching; needs a JDK and Maven, and -redisson

What to measure:
  -locks 1000,10000   numbers of locks
  -lease 30s          lease of a lock; all modes renew every third of it
  -duration 10s       of each measurement; at least a third of the lease, which is the default, and rounded up to whole ones
  -rounds 2           how often everything is measured
  -modes LIST         of none,per-lock,batched,redisson; the first three
  -redisson           adds the mode redisson
  -clients 2          client processes, between whom the locks are dealt out
  -foreground 500     ordinary commands a second (GET, and a SET in ten) whose latency is measured meanwhile; 0: none
  -seed N             of names and arrivals; random, and printed
Where:
  -cluster            in a cluster of three nodes of its own
  -redis ADDR         in a Redis that runs: host:port, or redis://user:password@host:6379/0. The figures then include whatever
                      else uses it. Small counters, lockdog:fence:*, stay behind.
Other runs:
  -soak 5m            hold a million locks (or -locks) in one process for that long
  -churn R            with -soak: take and release R other locks a second meanwhile
  -wave               take the locks within a second, cut all connections, stop a client for half a lease:
                      per-lock and batched, 10,000 locks (or -locks)
Results, beside the table:
  -json FILE          everything, for machines
  -html FILE          one page with charts, for people
  -h                  print this

What the figures mean, in the order of the table, with their names in JSON. Each is the median of the rounds, but for the peak
(the worst) and the losses (the sum). Locks are taken within a second (a tenth of the interval between renewals, if that is
less), and the window that is measured begins a second later (or half an interval).
Of two rounds one is without the foreground traffic: CPU and network are of those. With -rounds 1 they include its noise.
"Added" is less what the run without renewal took in the same round; its own row, and runs without one, show the whole.
  predicted        predicted_calls_per_s: locks ÷ interval ÷ batch, in whole calls of each client to each node.
                   A batch is 256 locks; 1 for per-lock, 100 for redisson (in a cluster, 1 call per slot)
  calls            calls_per_s: EVAL and EVALSHA that Redis received, from INFO commandstats. No script can call them, so that they
                   are the commands that came over the network. With -churn acquires and releases are among them
  received         received_per_s: all commands received over the network: calls, subscriptions and their pings, greetings of new
                   connections. INFO counts what scripts call as well, so they are told apart by name
  own count        own_per_s: the same, but for greetings, by the clients' own metrics (lockdog.redis.commands). The run fails when,
                   from the start of the clients to their end, it differs from Redis's by more than 2 calls and more than 2 %
                   of the renewals' calls
  in Lua           lua_per_s: commands that scripts called
  peak/100ms       peak_100ms: most calls in any 100 ms, from INFO every 20 ms by the server's clock (so 90 to 110 ms)
  renewals         renewals_per_s: locks renewed, by lockdog.renewals
  CPU %            redis_cpu_percent: of one core, used by Redis's process (INFO used_cpu_*), added; the sampler's INFOs taken off
  µs/renewal       redis_cpu_us_per_renewal: the same, for each lock renewed; where that drowns in the noise of the machine, as
                   it does with few locks, the next one, which is the least it can be
  in scripts       redis_script_us_per_renewal: time in scripts, from commandstats: without reading and writing, and by the clock, so
                   that it is too much on a busy machine; fit for few locks
  in, out B/s      net_in_bytes_per_s, net_out_bytes_per_s: as Redis sees it (INFO total_net_*), added; without the sampler's
  call p50, p99    batch_p50_ms, batch_p99_ms: time a renewal call took, waiting for a connection included
                   (lockdog.watchdog.batch.duration, in exponential buckets of 1 to 5 %; so are all times)
  lag p99          schedule_lag_p99_ms: how late renewal calls went out (lockdog.watchdog.schedule.lag)
  lease p99.9      lease_utilization_p999: share of the lease used up when it was renewed (lockdog.lease.utilization); 1 is too late
  lost             losses: locks that were not their holder's any more when it gave them back
  µs/renewal       client_cpu_us_per_renewal: CPU time of the client processes (getrusage), added
  goroutines/lock  goroutines_per_lock; threads, of redisson
  heap, stack/lock heap_bytes_per_lock, stack_bytes_per_lock: after a garbage collection, all locks held, less the same with one lock
                   held. The holder's name of the lock is in it. Holders give Lock a context.Background(); one that can
                   be canceled costs lockdog about 460 bytes more for each lock
  p50, p99, p99.9  foreground_p50_ms and so on: latency of the ordinary commands, from when they were due (an open loop: what a Redis
                   that stands still holds up counts in full). The p99 lies "from, to", as far as that many commands can tell
                   (95 %), in any round: when two such ranges overlap, the difference is noise

Below the table stand the promises that the run can check. It exits 0 when the figures are sound and no lock was lost, 1 when not
or when something went wrong, 2 for bad flags, 130 when interrupted; then it prints what there is.
`
