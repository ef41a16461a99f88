package org.postroad.interop.wss4j;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.ToNumberPolicy;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.Security;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.wss4j.dom.engine.WSSConfig;
import org.bouncycastle.jce.provider.BouncyCastleProvider;

/**
 * Checks and writes batches of messages, each batch with one call.
 *
 * <p>Every call has `keys` and `trusted` (PEM files), `at` (milliseconds since 1970) and
 * `messages`; the answer has one report for each message, by its name.
 */
public final class Main {
    private static final Gson JSON =
            new GsonBuilder()
                    .serializeNulls()
                    .setObjectToNumberStrategy(ToNumberPolicy.LONG_OR_DOUBLE)
                    .create();

    private Main() {
    }

    private interface Batch {
        Map<String, Object> report(Fields message) throws Exception;
    }

    private interface Work {
        Batch start(Fields call, Keys keys) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        WSSConfig.init();
        Security.addProvider(new BouncyCastleProvider());
        InetSocketAddress place = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        HttpServer server = HttpServer.create(place, 0);
        serve(server, "/verify", (call, keys) -> new Verifier(keys, call.object("users"))::verify);
        serve(server, "/write", (call, keys) -> new Writer(keys, time(call))::write);
        serve(server, "/ebxml/verify", (call, keys) -> new Ebxml(keys)::verify);
        serve(server, "/ebxml/sign", (call, keys) -> new Ebxml(keys)::sign);
        server.start();
        System.out.println("ready " + server.getAddress().getPort());
        System.out.flush();
    }

    private static Instant time(Fields call) {
        return Instant.ofEpochMilli(call.number("at"));
    }

    private static void serve(HttpServer server, String path, Work work) {
        server.createContext(path, exchange -> {
            String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            try {
                Fields call = Fields.of(JSON.fromJson(body, Map.class));
                Batch batch = work.start(call, new Keys(call.texts("keys"), call.texts("trusted")));
                Map<String, Object> reports = new LinkedHashMap<>();
                for (Fields message : call.objects("messages")) {
                    reports.put(message.text("name"), batch.report(message));
                }
                answer(exchange, 200, Map.of("messages", reports));
            } catch (Exception error) {
                error.printStackTrace();
                answer(exchange, 500, Map.of("error", Verifier.describe(error)));
            }
        });
    }

    private static void answer(HttpExchange exchange, int status, Map<String, Object> said) throws IOException {
        byte[] body = JSON.toJson(said).getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(status, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
