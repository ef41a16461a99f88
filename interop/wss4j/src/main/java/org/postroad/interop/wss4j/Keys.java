package org.postroad.interop.wss4j;

import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import org.apache.wss4j.common.crypto.Merlin;
import org.apache.wss4j.common.ext.WSPasswordCallback;

/** The keys of this side and the certificates that it trusts, read from PEM files. */
final class Keys {
    private static final Pattern SECTION =
        Pattern.compile("-----BEGIN ([A-Z ]+)-----(.*?)-----END", Pattern.DOTALL);
    private static final char[] PASSWORD = "secret".toCharArray();

    final KeyStore own = KeyStore.getInstance("PKCS12");
    final KeyStore trusted = KeyStore.getInstance("PKCS12");

    /** Reads one key and its certificate chain from each PEM file; its alias is the file's name. */
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
        String pem = Files.readString(file);
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        List<Certificate> chain = new ArrayList<>();
        PKCS8EncodedKeySpec encoded = null;
        Matcher sections = SECTION.matcher(pem);
        while (sections.find()) {
            byte[] der = Base64.getMimeDecoder().decode(sections.group(2));
            if (sections.group(1).equals("CERTIFICATE")) {
                chain.add(factory.generateCertificate(new ByteArrayInputStream(der)));
            } else {
                encoded = new PKCS8EncodedKeySpec(der);
            }
        }
        String kind = chain.get(0).getPublicKey().getAlgorithm();
        Key key = KeyFactory.getInstance(kind).generatePrivate(encoded);
        String name = file.getFileName().toString().replace(".pem", "");
        own.setKeyEntry(name, key, PASSWORD, chain.toArray(new Certificate[0]));
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
