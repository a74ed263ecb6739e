package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.NameMapper;

/**
 * Does with Redisson's locks what the Go tests say, line by line.
 *
 * <p>Arguments: the addresses of Redis, with commas between them (one is a single server, several are a cluster); the prefix of all
 * names; lockWatchdogTimeout in ms. The first line on stdout is {@code ready <version> <client id>}. Then each line on stdin is
 * {@code <call> <thread> <operation> <kind> <name> [<argument>...]}, and is answered, once it is done, by
 * {@code <call> ok <result>} or {@code <call> failed <exception>: <message>}. The end of stdin ends the program.
 *
 * <p>To Redisson a thread is the owner of a lock. So every thread label has one Java thread of its own, which calls what a
 * user's thread would call, and blocks where that would.
 */
public final class Main {
    private static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        RedissonClient redisson = Redisson.create(config(args[0].split(","), args[1], Long.parseLong(args[2])));
        Operations operations = new Operations(redisson);
        say("ready " + Redisson.class.getPackage().getImplementationVersion() + " " + redisson.getId());

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            THREADS.computeIfAbsent(words[1], Main::thread).execute(() -> say(words[0] + " " + answer(operations, words)));
        }
        redisson.shutdown();
    }

    private static String answer(Operations operations, String[] words) {
        try {
            return "ok " + operations.run(words);
        } catch (Exception e) {
            String text = e.getClass().getSimpleName() + ": " + e.getMessage();
            return "failed " + text.replaceAll("\\s+", " ");
        }
    }

    private static ExecutorService thread(String label) {
        return Executors.newSingleThreadExecutor(work -> {
            Thread t = new Thread(work, label);
            t.setDaemon(true); // one that waits for a lock doesn't keep the program from ending
            return t;
        });
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static Config config(String[] addresses, String prefix, long watchdogTimeout) {
        Config config = new Config();
        config.setLockWatchdogTimeout(watchdogTimeout);
        config.setNameMapper(new NameMapper() {
            @Override
            public String map(String name) {
                return prefix + name;
            }

            @Override
            public String unmap(String name) {
                return name.substring(prefix.length());
            }
        });
        // The defaults open 24 connections a node at once. Nothing else differs from them.
        if (addresses.length == 1) {
            config.useSingleServer().setAddress("redis://" + addresses[0]).setConnectionMinimumIdleSize(2);
        } else {
            for (String address : addresses) {
                config.useClusterServers().addNodeAddress("redis://" + address).setMasterConnectionMinimumIdleSize(2);
            }
        }
        return config;
    }
}
