package org.postroad.interop.wss4j;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.List;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import org.apache.wss4j.common.crypto.Merlin;
import org.apache.wss4j.common.ext.WSPasswordCallback;

/** The keys of this side and the certificates that it trusts, read from PKCS#12 and PEM files. */
final class Keys {
    private static final char[] PASSWORD = "secret".toCharArray();

    final KeyStore own = KeyStore.getInstance("PKCS12");
    final KeyStore trusted = KeyStore.getInstance("PKCS12");

    /** Reads one key and its certificate chain from each PKCS#12 file; its alias is the file's name. */
    Keys(List<String> keyFiles, List<String> certificateFiles) throws Exception {
        own.load(null, null);
        trusted.load(null, null);
        for (String file : keyFiles) {
            addKey(Path.of(file));
        }
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String file : certificateFiles) {
            try (InputStream in = Files.newInputStream(Path.of(file))) {
                int number = 0;
                for (Certificate one : factory.generateCertificates(in)) {
                    trusted.setCertificateEntry(Path.of(file).getFileName() + "-" + number++, one);
                }
            }
        }
    }

    private void addKey(Path file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(file)) {
            store.load(in, PASSWORD);
        }
        String alias = store.aliases().nextElement();
        String name = file.getFileName().toString().replace(".p12", "");
        Key key = store.getKey(alias, PASSWORD);
        own.setKeyEntry(name, key, PASSWORD, store.getCertificateChain(alias));
    }

    Merlin crypto() {
        Merlin crypto = new Merlin();
        crypto.setKeyStore(own);
        crypto.setTrustStore(trusted);
        return crypto;
    }

    X509Certificate certificate(String alias) throws Exception {
        return (X509Certificate) own.getCertificate(alias);
    }

    Key key(String alias) throws Exception {
        return own.getKey(alias, PASSWORD);
    }

    String password() {
        return new String(PASSWORD);
    }

    /** Answers WSS4J's questions for the password of a key, or for that of a user of a UsernameToken. */
    CallbackHandler passwords(Fields users) {
        return callbacks -> {
            for (Callback one : callbacks) {
                if (one instanceof WSPasswordCallback asked) {
                    boolean user = asked.getUsage() == WSPasswordCallback.USERNAME_TOKEN;
                    asked.setPassword(user ? users.text(asked.getIdentifier()) : password());
                }
            }
        };
    }
}
