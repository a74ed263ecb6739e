package interop;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** What can be asked of a lock: mostly one call of Redisson's each, by its name. Times are in ms. */
final class Operations {
    private final RedissonClient redisson;

    Operations(RedissonClient redisson) {
        this.redisson = redisson;
    }

    /** Runs {@code <call> <thread> <operation> <kind> <name> [<number>...]} on the calling thread and returns the result. */
    Object run(String[] words) throws InterruptedException {
        String name = words[4];
        RLock lock = switch (words[3]) {
            case "lock" -> redisson.getLock(name);
            case "fenced" -> redisson.getFencedLock(name);
            default -> throw new IllegalArgumentException("no such kind of lock: " + words[3]);
        };
        long[] numbers = new long[words.length - 5];
        for (int i = 0; i < numbers.length; i++) {
            numbers[i] = Long.parseLong(words[i + 5]);
        }
        return run(words[2], lock, numbers);
    }

    private Object run(String operation, RLock lock, long[] numbers) throws InterruptedException {
        switch (operation) {
            case "lock": // [lease]
                if (numbers.length == 0) {
                    lock.lock();
                } else {
                    lock.lock(numbers[0], TimeUnit.MILLISECONDS);
                }
                return "locked";
            case "tryLock": // [wait, lease], of which a lease of -1 is kept alive
                return numbers.length == 0 ? lock.tryLock() : lock.tryLock(numbers[0], numbers[1], TimeUnit.MILLISECONDS);
            case "lockAndGetToken":
                return ((RFencedLock) lock).lockAndGetToken();
            case "unlock":
                lock.unlock();
                return "unlocked";
            case "forceUnlock":
                return lock.forceUnlock();
            case "isLocked":
                return lock.isLocked();
            case "isHeldByCurrentThread":
                return lock.isHeldByCurrentThread();
            case "isHeldByThread": // thread id
                return lock.isHeldByThread(numbers[0]);
            case "getHoldCount":
                return lock.getHoldCount();
            case "remainTimeToLive":
                return lock.remainTimeToLive();
            case "threadId":
                return Thread.currentThread().getId();
            case "contend": // for how long
                return contend(lock, TimeUnit.MILLISECONDS.toNanos(numbers[0]));
            default:
                throw new IllegalArgumentException("no such operation: " + operation);
        }
    }

    /**
     * Takes the lock again and again. Under it a counter that all contenders share must go from 0 to 1; whoever sees another
     * value isn't alone. Returns the turns, how often somebody else was there, and the longest wait in ms.
     */
    private String contend(RLock lock, long nanos) {
        RAtomicLong inside = redisson.getAtomicLong(lock.getName() + ":inside");
        long end = System.nanoTime() + nanos;
        long turns = 0;
        long doubles = 0;
        long longest = 0;
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            lock.lock();
            longest = Math.max(longest, System.nanoTime() - asked);
            if (inside.incrementAndGet() != 1) {
                doubles++;
            }
            inside.decrementAndGet();
            turns++;
            lock.unlock();
        }
        return turns + " " + doubles + " " + TimeUnit.NANOSECONDS.toMillis(longest);
    }
}
