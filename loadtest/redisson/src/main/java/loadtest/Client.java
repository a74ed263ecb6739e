package loadtest;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;

/**
 * A child process of the load test that holds its locks through Redisson. Like the others it reads a line of JSON with its configuration, then
 * one for each request, and answers each with a line. See loadtest/internal/fleet and loadtest/internal/load.
 */
public final class Client {
    private static final Gson GSON = new Gson();
    private static final String END = ""; // of the input: never a line of JSON

    private Client() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String first = in.readLine();
        if (first == null) {
            return;
        }
        JsonObject cfg = JsonParser.parseString(first).getAsJsonObject();
        RedissonClient redisson = Redisson.create(configOf(cfg));
        Holder holder = new Holder(redisson, cfg);
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(in, lines, holder), "requests");
        reader.setDaemon(true);
        reader.start();
        try {
            for (String line = lines.take(); !line.equals(END); line = lines.take()) {
                out.println(GSON.toJson(answer(holder, JsonParser.parseString(line).getAsJsonObject())));
            }
        } finally {
            holder.release(new JsonObject()); // nothing, unless the run was interrupted
            redisson.shutdown();
        }
    }

    /** Reads ahead, so that a release, or the end of the input, stops what is being acquired. */
    private static void read(BufferedReader in, BlockingQueue<String> lines, Holder holder) {
        try {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.contains("\"release\"")) {
                    holder.stop();
                }
                lines.add(line);
            }
        } catch (IOException e) {
            System.err.println("reading requests: " + e);
        } finally {
            holder.stop();
            lines.add(END);
        }
    }

    /** Defaults, but for the lease. */
    private static Config configOf(JsonObject cfg) {
        Config config = new Config();
        config.setLockWatchdogTimeout(Math.round(cfg.get("lease").getAsDouble() * 1000));
        if (cfg.get("cluster").getAsBoolean()) {
            ClusterServersConfig cluster = config.useClusterServers();
            cfg.getAsJsonArray("addrs").forEach(a -> cluster.addNodeAddress("redis://" + a.getAsString()));
            return config;
        }
        config.useSingleServer().setAddress("redis://" + cfg.getAsJsonArray("addrs").get(0).getAsString());
        return config;
    }

    private static JsonObject answer(Holder holder, JsonObject request) {
        String what = request.get("do").getAsString();
        JsonObject reply = new JsonObject();
        JsonObject result = new JsonObject();
        reply.add("result", result);
        try {
            switch (what) {
                case "warm" -> holder.warm();
                case "acquire" -> holder.acquire(request.has("over") ? request.get("over").getAsDouble() : 0);
                case "weigh" -> weigh(result);
                case "read" -> holder.read(result, cpuTime());
                case "release" -> holder.release(result);
                default -> throw new IllegalArgumentException("unknown request " + what);
            }
        } catch (Exception e) {
            reply.addProperty("error", e.toString());
        }
        return reply;
    }

    private static void weigh(JsonObject weight) {
        System.gc();
        System.gc();
        weight.addProperty("heap", ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed());
        weight.addProperty("stacks", 0);
        weight.addProperty("goroutines", ManagementFactory.getThreadMXBean().getThreadCount());
    }

    private static double cpuTime() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }
}
