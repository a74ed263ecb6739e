-- The part of a Mutex's release that runs if the lock's mark says that a FairMutex with its name may have waiters.
wakeFair(KEYS[1], ARGV[2], channel)
