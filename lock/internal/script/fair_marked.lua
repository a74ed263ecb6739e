-- The part of a Mutex's release that runs if the lock's mark says that a FairMutex with its name has waiters.
wakeFair(KEYS[1], ARGV[2], channel)
