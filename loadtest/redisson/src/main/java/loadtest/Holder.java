package loadtest;

import com.google.gson.JsonObject;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntFunction;
import org.redisson.api.RFuture;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The locks of one process. All are watched: taken without a lease of their own. */
final class Holder {
    private static final int FLIGHT = 64; // calls at a time, as in the load test's own children
    private static final long THREAD = 1; // who holds them: any number will do

    private final RedissonClient redisson;
    private final int first;
    private final RLock[] locks;
    private volatile boolean stopped;
    private boolean released;
    private double cpu;

    Holder(RedissonClient redisson, JsonObject cfg) {
        this.redisson = redisson;
        this.first = cfg.get("first").getAsInt();
        this.locks = new RLock[cfg.get("locks").getAsInt()];
    }

    /** Stops what is being acquired. */
    void stop() {
        stopped = true;
    }

    /** The first lock comes first: while any is held, Redisson's renewal task goes on. It starts another when none was. */
    void warm() throws Exception {
        each(0, 1, 0, this::take);
        each(0, 2 * FLIGHT, 0, i -> {
            RLock lock = redisson.getLock("loadtest:warm:" + name(first) + ":" + i);
            return lock.tryLockAsync(THREAD).thenCompose(ok -> lock.unlockAsync(THREAD));
        });
    }

    void acquire(double over) throws Exception {
        each(1, locks.length, over, this::take);
    }

    private CompletionStage<?> take(int i) {
        RLock lock = redisson.getLock(name(first + i));
        RFuture<Boolean> taken = lock.tryLockAsync(THREAD);
        return taken.thenAccept(ok -> {
            if (!ok) {
                throw new IllegalStateException(lock.getName() + " is held");
            }
            locks[i] = lock;
        });
    }

    void read(JsonObject reading, double cpuTime) {
        reading.addProperty("cpu", cpuTime - cpu);
        reading.addProperty("goroutines", ManagementFactory.getThreadMXBean().getThreadCount());
        cpu = cpuTime;
    }

    void release(JsonObject reply) throws Exception {
        if (released) {
            return;
        }
        released = true;
        stopped = false;
        AtomicInteger released = new AtomicInteger();
        AtomicInteger lost = new AtomicInteger();
        each(0, locks.length, 0, i -> locks[i] == null ? CompletableFuture.completedFuture(null)
                : locks[i].unlockAsync(THREAD).handle((ok, e) -> {
                    Throwable cause = e instanceof CompletionException ? e.getCause() : e;
                    if (cause == null) {
                        released.incrementAndGet();
                    } else if (cause instanceof IllegalMonitorStateException) { // not ours any more
                        lost.incrementAndGet();
                    } else {
                        throw new CompletionException(cause);
                    }
                    return null;
                }));
        reply.addProperty("released", released.get());
        reply.addProperty("lost", lost.get());
    }

    /** The same names as child.Name gives. */
    private String name(int i) {
        long x = (i + 1) * 0x9E3779B97F4A7C15L;
        x = (x ^ x >>> 30) * 0xBF58476D1CE4E5B9L;
        x = (x ^ x >>> 27) * 0x94D049BB133111EBL;
        return String.format("loadtest:%016x", x ^ x >>> 31);
    }

    /** Calls something for every number, at even intervals over that many seconds, and waits until all is done. */
    private void each(int from, int to, double over, IntFunction<CompletionStage<?>> call) throws Exception {
        Semaphore flight = new Semaphore(FLIGHT);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        long start = System.nanoTime();
        for (int i = from; i < to && !stopped && failed.get() == null; i++) {
            long early = start + (long) (over * 1e9 * (i - from) / (to - from)) - System.nanoTime();
            if (early > 1_000_000) {
                Thread.sleep(early / 1_000_000);
            }
            flight.acquire();
            call.apply(i).whenComplete((ok, e) -> {
                if (e != null) {
                    failed.compareAndSet(null, e);
                }
                flight.release();
            });
        }
        flight.acquire(FLIGHT);
        if (failed.get() != null) {
            throw new Exception(failed.get());
        }
    }
}
