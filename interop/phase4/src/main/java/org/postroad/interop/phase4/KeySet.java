package org.postroad.interop.phase4;

import com.helger.json.IJsonObject;
import com.helger.phase4.crypto.AS4CryptoFactoryInMemoryKeyStore;
import com.helger.phase4.crypto.IAS4CryptoFactory;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Collections;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * The keys of one identity: a PKCS#12 to sign with, one to decrypt with, and trusted certificates.
 *
 * <p>Several identities exist side by side; the last path segment of the receiver's URL names one.
 */
record KeySet(IAS4CryptoFactory sign, IAS4CryptoFactory decrypt) {
  private static final ConcurrentMap<String, KeySet> ALL = new ConcurrentHashMap<>();

  static void put(IJsonObject request) throws Exception {
    KeyStore trust = trusted(request.getAsString("trust"));
    char[] password = request.getAsString("password").toCharArray();
    IAS4CryptoFactory sign = factory(request.getAsString("sign"), password, trust);
    String decrypt = request.getAsString("decrypt");
    KeySet keys =
        new KeySet(sign, decrypt == null ? sign : factory(decrypt, password, trust));
    ALL.put(request.getAsString("name"), keys);
  }

  static KeySet named(String name) {
    KeySet found = ALL.get(name);
    if (found == null) {
      throw new IllegalArgumentException("Unknown key set '" + name + "'. Known: " + ALL.keySet());
    }
    return found;
  }

  static X509Certificate certificate(String pem) throws Exception {
    try (InputStream in = Files.newInputStream(Path.of(pem))) {
      return (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
    }
  }

  /** An SSL context from a PKCS#12 and a PEM file of trusted certificates. */
  static SSLContext sslContext(IJsonObject tls) throws Exception {
    char[] password = tls.getAsString("password").toCharArray();
    KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
    keys.init(load(tls.getAsString("key"), password), password);
    TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
    trust.init(trusted(tls.getAsString("trust")));
    SSLContext context = SSLContext.getInstance("TLS");
    context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
    return context;
  }

  private static IAS4CryptoFactory factory(String file, char[] password, KeyStore trust)
      throws Exception {
    KeyStore store = load(file, password);
    String alias =
        Collections.list(store.aliases()).stream()
            .filter(one -> isKey(store, one))
            .findFirst()
            .orElseThrow();
    return new AS4CryptoFactoryInMemoryKeyStore(store, alias, password, trust);
  }

  private static boolean isKey(KeyStore store, String alias) {
    try {
      return store.isKeyEntry(alias);
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
  }

  private static KeyStore load(String file, char[] password) throws Exception {
    KeyStore store = KeyStore.getInstance("PKCS12");
    try (InputStream in = Files.newInputStream(Path.of(file))) {
      store.load(in, password);
    }
    return store;
  }

  private static KeyStore trusted(String pem) throws Exception {
    KeyStore store = KeyStore.getInstance("PKCS12");
    store.load(null, null);
    try (InputStream in = Files.newInputStream(Path.of(pem))) {
      int count = 0;
      for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
        store.setCertificateEntry("trusted-" + count++, one);
      }
    }
    return store;
  }
}
