-- A release of a lock for which a FairMutex is waited for. It comes after entry.lua and fair_wake.lua, and only where the mark is.
wakeFair(KEYS[1], ARGV[2], channel)
