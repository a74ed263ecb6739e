package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import java.util.Arrays;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** What can be asked of a lock: mostly one call of Redisson's each, by its name. Times are in ms. */
final class Operations {
    private final RedissonClient redisson;
    private final Contention contention;

    Operations(RedissonClient redisson) {
        this.redisson = redisson;
        contention = new Contention(redisson);
    }

    /** Runs {@code <call> <thread> <operation> <kind> <name> [<argument>...]} on the calling thread and returns the result. */
    Object run(String[] words) throws InterruptedException {
        String operation = words[2];
        Object target = kind(words[3], words[4]);
        String[] args = Arrays.copyOfRange(words, 5, words.length);
        if (operation.equals("contend")) {
            return contention.run(target, words[4], args);
        } else if (target instanceof RLock lock) {
            return run(operation, lock, args);
        } else if (target instanceof RSemaphore semaphore) {
            return run(operation, semaphore, args);
        } else if (target instanceof RPermitExpirableSemaphore permits) {
            return run(operation, permits, args);
        }
        return run(operation, (RCountDownLatch) target, args);
    }

    private Object kind(String kind, String name) {
        return switch (kind) {
            case "lock" -> redisson.getLock(name);
            case "fenced" -> redisson.getFencedLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            case "semaphore" -> redisson.getSemaphore(name);
            case "permits" -> redisson.getPermitExpirableSemaphore(name);
            case "latch" -> redisson.getCountDownLatch(name);
            default -> throw new IllegalArgumentException("no such kind of lock: " + kind);
        };
    }

    private static Object run(String operation, RLock lock, String[] args) throws InterruptedException {
        switch (operation) {
            case "lock": // [lease]
                if (args.length == 0) {
                    lock.lock();
                } else {
                    lock.lock(number(args[0]), MILLISECONDS);
                }
                return "locked";
            case "tryLock": // [wait, lease], of which a lease of -1 is kept alive
                return args.length == 0 ? lock.tryLock() : lock.tryLock(number(args[0]), number(args[1]), MILLISECONDS);
            case "lockAndGetToken":
                return ((RFencedLock) lock).lockAndGetToken();
            case "getToken":
                return ((RFencedLock) lock).getToken();
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
                return lock.isHeldByThread(number(args[0]));
            case "getHoldCount":
                return lock.getHoldCount();
            case "remainTimeToLive":
                return lock.remainTimeToLive();
            case "threadId":
                return Thread.currentThread().getId();
            default:
                throw unknown(operation);
        }
    }

    private static Object run(String operation, RSemaphore semaphore, String[] args) throws InterruptedException {
        switch (operation) {
            case "trySetPermits": // n
                return semaphore.trySetPermits(count(args[0]));
            case "acquire": // n
                semaphore.acquire(count(args[0]));
                return "acquired";
            case "tryAcquire": // n [wait]
                return args.length == 1 ? semaphore.tryAcquire(count(args[0]))
                        : semaphore.tryAcquire(count(args[0]), Duration.ofMillis(number(args[1])));
            case "release": // n
                semaphore.release(count(args[0]));
                return "released";
            case "addPermits": // n, of which some may be less than none
                semaphore.addPermits(count(args[0]));
                return "added";
            case "availablePermits":
                return semaphore.availablePermits();
            case "drainPermits":
                return semaphore.drainPermits();
            default:
                throw unknown(operation);
        }
    }

    /** A permit is named by its id, in hex. */
    private static Object run(String operation, RPermitExpirableSemaphore permits, String[] args) throws InterruptedException {
        switch (operation) {
            case "trySetPermits": // n
                return permits.trySetPermits(count(args[0]));
            case "acquire": // [lease]
                return args.length == 0 ? permits.acquire() : permits.acquire(number(args[0]), MILLISECONDS);
            case "tryAcquire": // [wait, lease]; null when there is none
                return args.length == 0 ? permits.tryAcquire()
                        : permits.tryAcquire(number(args[0]), number(args[1]), MILLISECONDS);
            case "release": // id
                permits.release(args[0]);
                return "released";
            case "tryRelease": // id
                return permits.tryRelease(args[0]);
            case "updateLeaseTime": // id, lease
                return permits.updateLeaseTime(args[0], number(args[1]), MILLISECONDS);
            case "addPermits": // n, of which some may be less than none
                permits.addPermits(count(args[0]));
                return "added";
            case "availablePermits":
                return permits.availablePermits();
            case "acquiredPermits":
                return permits.acquiredPermits();
            case "getPermits":
                return permits.getPermits();
            default:
                throw unknown(operation);
        }
    }

    private static Object run(String operation, RCountDownLatch latch, String[] args) throws InterruptedException {
        switch (operation) {
            case "trySetCount": // n
                return latch.trySetCount(number(args[0]));
            case "countDown":
                latch.countDown();
                return "counted";
            case "await": // [wait]
                if (args.length == 1) {
                    return latch.await(number(args[0]), MILLISECONDS);
                }
                latch.await();
                return "open";
            case "getCount":
                return latch.getCount();
            case "delete":
                return latch.delete();
            default:
                throw unknown(operation);
        }
    }

    static long number(String word) {
        return Long.parseLong(word);
    }

    static int count(String word) {
        return Integer.parseInt(word);
    }

    private static IllegalArgumentException unknown(String operation) {
        return new IllegalArgumentException("no such operation: " + operation);
    }
}
