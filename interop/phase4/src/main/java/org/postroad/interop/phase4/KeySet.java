package org.postroad.interop.phase4;

import com.helger.json.IJsonObject;
import com.helger.phase4.crypto.AS4CryptoFactoryInMemoryKeyStore;
import com.helger.phase4.crypto.IAS4CryptoFactory;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.Provider;
import java.security.Security;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collections;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * The keys of one identity: a PKCS#12 to sign with, one to decrypt with, and trusted certificates.
 *
 * <p>Signatures are made and verified by `provider`; null lets the JDK choose. Several identities
 * exist side by side; the last path segment of the receiver's URL names one.
 */
record KeySet(IAS4CryptoFactory sign, IAS4CryptoFactory decrypt, Provider provider) {
  private static final ConcurrentMap<String, KeySet> ALL = new ConcurrentHashMap<>();

  static void put(IJsonObject request) throws Exception {
    KeyStore trust = trusted(request.getAsString("trust"));
    char[] password = request.getAsString("password").toCharArray();
    IAS4CryptoFactory sign = factory(request.getAsString("sign"), password, trust);
    String decrypt = request.getAsString("decrypt");
    String provider = request.getAsString("provider");
    KeySet keys =
        new KeySet(
            sign,
            decrypt == null ? sign : factory(decrypt, password, trust),
            provider == null ? null : Security.getProvider(provider));
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
    if (file.endsWith(".pem")) {
      store.load(null, null);
      store.setKeyEntry("key", pemKey(file), password, pemChain(file));
      return store;
    }
    try (InputStream in = Files.newInputStream(Path.of(file))) {
      store.load(in, password);
    }
    return store;
  }

  /** The private key of a PEM file. No library of the tests writes X25519 keys into PKCS#12. */
  private static PrivateKey pemKey(String file) throws Exception {
    String text = Files.readString(Path.of(file));
    String begin = "-----BEGIN PRIVATE KEY-----";
    String key =
        text.substring(
            text.indexOf(begin) + begin.length(), text.indexOf("-----END PRIVATE KEY-----"));
    byte[] encoded = Base64.getMimeDecoder().decode(key);
    return KeyFactory.getInstance("XDH").generatePrivate(new PKCS8EncodedKeySpec(encoded));
  }

  private static Certificate[] pemChain(String file) throws Exception {
    String text = Files.readString(Path.of(file));
    String chain = text.substring(text.indexOf("-----BEGIN CERTIFICATE-----"));
    return CertificateFactory.getInstance("X.509")
        .generateCertificates(new ByteArrayInputStream(chain.getBytes(StandardCharsets.US_ASCII)))
        .toArray(Certificate[]::new);
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
