package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.MINUTES;
import static java.util.concurrent.TimeUnit.NANOSECONDS;

import org.redisson.api.RAtomicLong;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Takes and gives back, again and again, and looks who else is in there. */
final class Contention {
    private final RedissonClient redisson;

    Contention(RedissonClient redisson) {
        this.redisson = redisson;
    }

    /** What there is to do to give it back. */
    private interface Held {
        void giveBack();
    }

    /** Waits until it has it. */
    private interface Taking {
        Held take() throws InterruptedException;
    }

    /**
     * Arguments: for how long, what one who is in there weighs, what all in there may weigh (1 and 1 where everybody has to be
     * alone), and how long to rest after each turn. All contenders share the counter that says what those in there weigh. Returns
     * the turns, how often it weighed too much, and the longest wait in ms. A latch has other arguments: see {@link #meet}.
     */
    String run(Object target, String name, String[] args) throws InterruptedException {
        if (target instanceof RCountDownLatch) {
            return meet(name, Operations.number(args[0]), Operations.number(args[1]));
        }
        Taking taking = taking(target);
        RAtomicLong inside = redisson.getAtomicLong(name + ":inside");
        long weight = Operations.number(args[1]);
        long most = Operations.number(args[2]);
        long rest = Operations.number(args[3]);
        long end = System.nanoTime() + MILLISECONDS.toNanos(Operations.number(args[0]));
        long turns = 0;
        long crowds = 0;
        long longest = 0;
        for (long asked = System.nanoTime(); asked < end; asked = System.nanoTime()) {
            Held held = taking.take();
            longest = Math.max(longest, System.nanoTime() - asked);
            if (inside.addAndGet(weight) > most) {
                crowds++;
            }
            inside.addAndGet(-weight);
            turns++;
            held.giveBack();
            MILLISECONDS.sleep(rest);
        }
        return turns + " " + crowds + " " + NANOSECONDS.toMillis(longest);
    }

    private static Taking taking(Object target) {
        if (target instanceof RLock lock) {
            return () -> {
                lock.lock();
                return lock::unlock;
            };
        } else if (target instanceof RSemaphore semaphore) {
            return () -> {
                semaphore.acquire();
                return semaphore::release;
            };
        }
        RPermitExpirableSemaphore permits = (RPermitExpirableSemaphore) target;
        return () -> {
            String id = permits.acquire(1, MINUTES);
            return () -> permits.release(id);
        };
    }

    /**
     * Has all parties meet that often, each time at a latch of its own: who comes says so, counts it down, and waits for the others. Returns
     * the rounds, how often somebody was let go before all had come, and the longest wait in ms.
     */
    private String meet(String name, long rounds, long parties) throws InterruptedException {
        long early = 0;
        long longest = 0;
        for (long round = 0; round < rounds; round++) {
            RCountDownLatch latch = redisson.getCountDownLatch(name + ":" + round);
            RAtomicLong arrived = redisson.getAtomicLong(name + ":" + round + ":arrived");
            latch.trySetCount(parties);
            long asked = System.nanoTime();
            arrived.incrementAndGet();
            latch.countDown();
            latch.await();
            longest = Math.max(longest, System.nanoTime() - asked);
            if (arrived.get() != parties) {
                early++;
            }
        }
        return rounds + " " + early + " " + NANOSECONDS.toMillis(longest);
    }
}
