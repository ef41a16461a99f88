package org.postroad.interop.phase4;

import com.helger.base.debug.GlobalDebug;
import com.helger.json.IJsonObject;
import com.helger.json.JsonObject;
import com.helger.json.serialize.JsonReader;
import com.helger.phase4.CAS4Version;
import com.helger.phase4.incoming.AS4ServerInitializer;
import com.helger.photon.io.WebFileIO;
import com.helger.web.scope.mgr.WebScopeManager;
import com.helger.xservlet.requesttrack.RequestTrackerSettings;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import jakarta.servlet.ServletContextEvent;
import jakarta.servlet.ServletContextListener;
import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.Security;
import java.util.Map;
import java.util.concurrent.Executors;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.HttpConfiguration;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.SecureRequestCustomizer;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.ssl.SslContextFactory;

/**
 * phase4 as sender, receiver and pull responder in one process, behind a control port.
 *
 * <p>Argument: a folder for phase4's data. Commands: /listen, /keys, /pmode, /send, /pull, /offer,
 * /received, /signals.
 */
public final class Main {
  private interface Command {
    IJsonObject run(IJsonObject request) throws Exception;
  }

  private static final Server SERVER = new Server();

  private Main() {}

  public static void main(String[] arguments) throws Exception {
    configure(arguments[0]);
    int port = listen(new JsonObject());
    ServletContextHandler context = new ServletContextHandler("/");
    context.addEventListener(new Scopes(arguments[0]));
    context.addServlet(new ServletHolder(Endpoint.class), "/as4/*");
    SERVER.setHandler(context);
    SERVER.start();
    port = ((ServerConnector) SERVER.getConnectors()[0]).getLocalPort();
    int http = port;
    Map<String, Command> commands =
        Map.of(
            "/info", request -> new JsonObject().add("port", http).add("version", CAS4Version.BUILD_VERSION),
            "/listen", request -> new JsonObject().add("port", listen(request)),
            "/keys", request -> done(() -> KeySet.put(request)),
            "/pmode", request -> done(() -> Modes.put(request)),
            "/offer", request -> done(() -> Inbox.offer(request)),
            "/send", Outbox::send,
            "/pull", Outbox::pull,
            "/received", Inbox::messages,
            "/signals", Inbox::signals);
    HttpServer control = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
    control.setExecutor(Executors.newCachedThreadPool());
    commands.forEach((path, command) -> control.createContext(path, each -> answer(each, command)));
    control.start();
    System.out.println("ready " + control.getAddress().getPort());
  }

  private static void configure(String folder) {
    Map.of(
            "global.debug", "true",
            "global.production", "false",
            "global.nostartupinfo", "true",
            "global.datapath", folder,
            "phase4.manager.inmemory", "true",
            "phase4.endpoint.address", "http://127.0.0.1/as4",
            "org.slf4j.simpleLogger.defaultLogLevel", "info")
        .forEach(System::setProperty);
    // The JDK knows no brainpool curves.
    Security.insertProviderAt(new BouncyCastleProvider(), 1);
    GlobalDebug.setDebugModeDirect(true);
    RequestTrackerSettings.setLongRunningRequestsCheckEnabled(false);
    RequestTrackerSettings.setParallelRunningRequestsCheckEnabled(false);
  }

  /** Opens and closes the scopes that phase4 keeps its managers in. */
  private record Scopes(String folder) implements ServletContextListener {
    @Override
    public void contextInitialized(ServletContextEvent event) {
      WebScopeManager.onGlobalBegin(event.getServletContext());
      WebFileIO.initPaths(new File(folder), folder, false);
      AS4ServerInitializer.initAS4Server();
    }
  }

  /** Open one more port of the receiver; with `key` and `trust` for TLS with client certificates. */
  private static int listen(IJsonObject request) throws Exception {
    ServerConnector connector;
    if (request.getAsString("key") == null) {
      connector = new ServerConnector(SERVER);
    } else {
      SslContextFactory.Server tls = new SslContextFactory.Server();
      tls.setSslContext(KeySet.sslContext(request));
      tls.setNeedClientAuth(true);
      HttpConfiguration http = new HttpConfiguration();
      http.addCustomizer(new SecureRequestCustomizer(false));
      connector = new ServerConnector(SERVER, tls, new HttpConnectionFactory(http));
    }
    connector.setHost("127.0.0.1");
    SERVER.addConnector(connector);
    if (SERVER.isStarted()) {
      connector.start();
    }
    return connector.getLocalPort();
  }

  private interface Action {
    void run() throws Exception;
  }

  private static IJsonObject done(Action action) throws Exception {
    action.run();
    return new JsonObject();
  }

  private static void answer(HttpExchange exchange, Command command) throws IOException {
    int status = 200;
    String text;
    try {
      byte[] body = exchange.getRequestBody().readAllBytes();
      IJsonObject request =
          JsonReader.readFromString(new String(body, StandardCharsets.UTF_8)).getAsObject();
      text = command.run(request).getAsJsonString();
    } catch (Throwable error) {
      error.printStackTrace();
      status = 500;
      text = error.toString();
    }
    byte[] answer = text.getBytes(StandardCharsets.UTF_8);
    exchange.sendResponseHeaders(status, answer.length);
    exchange.getResponseBody().write(answer);
    exchange.close();
  }
}
