package org.postroad.interop.cxf;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.ToNumberPolicy;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;

/**
 * Apache CXF as the other party of a test, controlled by JSON over HTTP.
 *
 * <p>Receivers and senders are made by name. Each has a bus, and so a WS-ReliableMessaging manager,
 * of its own. Prints {@code ready PORT} when the control port listens.
 */
public final class Peer {
    private static final Gson JSON =
            new GsonBuilder()
                    .serializeNulls()
                    .setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE)
                    .create();

    private final Map<String, Receiver> receivers = new ConcurrentHashMap<>();
    private final Map<String, Sender> senders = new ConcurrentHashMap<>();

    private interface Command {
        Object run(Options options) throws Exception;
    }

    public static void main(String[] arguments) throws IOException {
        InetAddress loopback = InetAddress.getLoopbackAddress();
        HttpServer server = HttpServer.create(new InetSocketAddress(loopback, 0), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        new Peer().mount(server);
        server.start();
        System.out.println("ready " + server.getAddress().getPort());
    }

    private void mount(HttpServer server) {
        add(server, "/version", o -> Map.of("version", org.apache.cxf.version.Version.getCurrentVersion()));
        add(server, "/receiver", this::receiver);
        add(server, "/received", o -> Map.of("messages", find(receivers, o).received()));
        add(server, "/sender", this::sender);
        add(server, "/send", o -> find(senders, o).send(o));
        add(server, "/close", o -> find(senders, o).close());
        add(server, "/terminate", o -> find(senders, o).terminate());
        add(server, "/sequences", this::sequences);
        add(server, "/stop", this::stop);
    }

    private Object receiver(Options options) throws Exception {
        Receiver receiver = new Receiver(options);
        receivers.put(options.text("name"), receiver);
        return Map.of("url", receiver.url());
    }

    private Object sender(Options options) throws Exception {
        senders.put(options.text("name"), new Sender(options));
        return Map.of();
    }

    private Object sequences(Options options) {
        Receiver receiver = receivers.get(options.text("name"));
        return (receiver != null ? receiver.reliability() : find(senders, options).reliability()).sequences();
    }

    private Object stop(Options options) {
        Receiver receiver = receivers.remove(options.text("name"));
        if (receiver != null) {
            receiver.stop();
        } else {
            find(senders, options).stop();
            senders.remove(options.text("name"));
        }
        return Map.of();
    }

    private static <T> T find(Map<String, T> known, Options options) {
        T found = known.get(options.text("name"));
        if (found == null) {
            throw new IllegalArgumentException("Unknown name: " + options.text("name") + ".");
        }
        return found;
    }

    private static void add(HttpServer server, String path, Command command) {
        server.createContext(path, exchange -> answer(exchange, command));
    }

    private static void answer(HttpExchange exchange, Command command) throws IOException {
        Object said;
        int status = 200;
        try {
            String text = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            said = command.run(new Options(text.isBlank() ? Map.of() : JSON.fromJson(text, Map.class)));
        } catch (Exception | LinkageError failure) {
            StringWriter trace = new StringWriter();
            failure.printStackTrace(new PrintWriter(trace));
            failure.printStackTrace();
            Map<String, Object> map = new LinkedHashMap<>();
            map.put("error", failure.toString());
            map.put("trace", trace.toString());
            said = map;
            status = 500;
        }
        byte[] bytes = JSON.toJson(said).getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }
}
