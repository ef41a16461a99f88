package org.postroad.interop.wss4j;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Provider;
import java.security.Security;
import java.security.cert.X509Certificate;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.crypto.SecretKey;
import org.apache.wss4j.common.WSEncryptionPart;
import org.apache.wss4j.common.crypto.Merlin;
import org.apache.wss4j.common.ext.Attachment;
import org.apache.wss4j.common.util.KeyUtils;
import org.apache.wss4j.common.util.WSTimeSource;
import org.apache.wss4j.dom.WSConstants;
import org.apache.wss4j.dom.message.WSSecEncrypt;
import org.apache.wss4j.dom.message.WSSecHeader;
import org.apache.wss4j.dom.message.WSSecSignature;
import org.apache.wss4j.dom.message.WSSecTimestamp;
import org.apache.wss4j.dom.message.WSSecUsernameToken;
import org.apache.xml.security.encryption.params.ConcatKDFParams;
import org.apache.xml.security.encryption.params.HKDFParams;
import org.w3c.dom.Document;

/** Lets WSS4J sign and encrypt messages, and writes them as HTTP bodies. */
final class Writer {
    private static final Map<String, Integer> REFERENCES = Map.of(
        "direct", WSConstants.BST_DIRECT_REFERENCE,
        "pki_path", WSConstants.BST_DIRECT_REFERENCE,
        "issuer_serial", WSConstants.ISSUER_SERIAL,
        "issuer_serial_quoted", WSConstants.ISSUER_SERIAL_QUOTE_FORMAT,
        "subject_key_identifier", WSConstants.SKI_KEY_IDENTIFIER,
        "thumbprint", WSConstants.THUMBPRINT_IDENTIFIER,
        "key_identifier", WSConstants.X509_KEY_IDENTIFIER,
        "x509_ski", WSConstants.X509_SKI,
        "key_value", WSConstants.KEY_VALUE);

    private final Keys keys;
    private final WSTimeSource clock;

    Writer(Keys keys, Instant now) {
        this.keys = keys;
        this.clock = () -> now;
    }

    /** Secures one envelope as asked; returns the Content-Type of the file written, or an `error`. */
    Map<String, Object> write(Fields message) throws Exception {
        Map<String, Object> report = new LinkedHashMap<>();
        try {
            report.put("content_type", secure(message));
        } catch (Exception error) {
            report.put("error", Verifier.describe(error));
        }
        return report;
    }

    private String secure(Fields message) throws Exception {
        Document document = SoapMessage.parse(Files.readAllBytes(Path.of(message.text("envelope"))));
        List<Attachment> given = new ArrayList<>();
        for (Fields one : message.objects("attachments")) {
            given.add(attachment(one));
        }
        Attachments attachments = new Attachments(given);
        WSSecHeader header = new WSSecHeader(document);
        header.setMustUnderstand(true);
        header.insertSecurityHeader();
        if (message.has("username")) {
            addUsername(header, message.object("username"));
        }
        if (message.has("timestamp_seconds")) {
            addTimestamp(header, (int) message.number("timestamp_seconds"));
        }
        for (String step : message.texts("order")) {
            if ("sign".equals(step)) {
                sign(header, attachments, message.object("sign"));
            } else {
                encryptByProvider(header, attachments, message.object("encrypt"));
            }
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        String type = SoapMessage.write(
            SoapMessage.serialize(document), message.text("soap_type"), attachments.all(), out);
        Files.write(Path.of(message.text("file")), out.toByteArray());
        return type;
    }

    private static Attachment attachment(Fields given) throws Exception {
        Attachment attachment = new Attachment();
        attachment.setId(given.text("id"));
        attachment.setMimeType(given.text("media_type"));
        Map<String, String> headers = new HashMap<>();
        headers.put("Content-ID", "<" + given.text("id") + ">");
        headers.put("Content-Type", given.text("media_type"));
        attachment.addHeaders(headers);
        byte[] content = Files.readAllBytes(Path.of(given.text("file")));
        attachment.setSourceStream(new ByteArrayInputStream(content));
        return attachment;
    }

    private void addUsername(WSSecHeader header, Fields asked) {
        WSSecUsernameToken token = new WSSecUsernameToken(header);
        token.setWsTimeSource(clock);
        token.setPasswordType(asked.flag("digest") ? WSConstants.PASSWORD_DIGEST : WSConstants.PASSWORD_TEXT);
        token.setUserInfo(asked.text("user"), asked.text("password"));
        token.addNonce();
        token.addCreated();
        token.build();
    }

    private void addTimestamp(WSSecHeader header, int seconds) {
        WSSecTimestamp timestamp = new WSSecTimestamp(header);
        timestamp.setWsTimeSource(clock);
        timestamp.setTimeToLive(seconds);
        timestamp.setPrecisionInMilliSeconds(true);
        timestamp.build();
    }

    private void sign(WSSecHeader header, Attachments attachments, Fields asked) throws Exception {
        WSSecSignature signature = new WSSecSignature(header);
        String reference = asked.text("reference");
        signature.setUserInfo(asked.text("key"), keys.password());
        signature.setKeyIdentifierType(REFERENCES.get(reference));
        signature.setUseSingleCertificate(!"pki_path".equals(reference));
        signature.setSignatureAlgorithm(asked.text("algorithm"));
        signature.setDigestAlgo(asked.text("digest"));
        signature.setAddInclusivePrefixes(asked.flag("inclusive_prefixes"));
        signature.setAttachmentCallbackHandler(attachments);
        if (asked.flag("bouncy_castle")) {
            signature.setSignatureProvider(Security.getProvider("BC"));
        }
        addParts(signature.getParts(), asked);
        signature.build(keys.crypto());
    }

    /** Key agreement has no provider of its own: for brainpool curves Bouncy Castle has to be the first. */
    private void encryptByProvider(WSSecHeader header, Attachments attachments, Fields asked) throws Exception {
        Provider provider = Security.getProvider("BC");
        if (!asked.flag("bouncy_castle")) {
            encrypt(header, attachments, asked);
            return;
        }
        Security.removeProvider("BC");
        Security.insertProviderAt(provider, 1);
        try {
            encrypt(header, attachments, asked);
        } finally {
            Security.removeProvider("BC");
            Security.addProvider(provider);
        }
    }

    private void encrypt(WSSecHeader header, Attachments attachments, Fields asked) throws Exception {
        Merlin crypto = keys.crypto();
        WSSecEncrypt encrypt = new WSSecEncrypt(header);
        X509Certificate recipient = keys.certificate(asked.text("key"));
        encrypt.setUseThisCert(recipient);
        encrypt.setKeyIdentifierType(REFERENCES.get(asked.text("reference")));
        encrypt.setSymmetricEncAlgorithm(asked.text("data"));
        encrypt.setKeyEncAlgo(asked.text("key_algorithm"));
        if (asked.has("digest")) {
            encrypt.setDigestAlgorithm(asked.text("digest"));
        }
        if (asked.has("mgf")) {
            encrypt.setMGFAlgorithm(asked.text("mgf"));
        }
        if (asked.has("agreement")) {
            encrypt.setKeyAgreementMethod(asked.text("agreement"));
            encrypt.setKeyDerivationMethod(asked.text("derivation"));
            setDerivation(encrypt, asked);
        }
        encrypt.setAttachmentCallbackHandler(attachments);
        addParts(encrypt.getParts(), asked);
        SecretKey key = KeyUtils.getKeyGenerator(asked.text("data")).generateKey();
        encrypt.build(crypto, key);
    }

    /** Leaves WSS4J its own defaults where no parameters are asked for. */
    private static void setDerivation(WSSecEncrypt encrypt, Fields asked) {
        if (!asked.has("derivation_digest")) {
            return;
        }
        int bits = (int) asked.number("derivation_bits");
        String digest = asked.text("derivation_digest");
        if (WSConstants.KEYDERIVATION_HKDF.equals(asked.text("derivation"))) {
            encrypt.setKeyDerivationParameters(HKDFParams.createBuilder(bits, digest)
                .salt("a salt of this message".getBytes(java.nio.charset.StandardCharsets.UTF_8))
                .info(asked.has("info") ? asked.text("info").getBytes(java.nio.charset.StandardCharsets.UTF_8) : null)
                .build());
        } else {
            encrypt.setKeyDerivationParameters(ConcatKDFParams.createBuilder(bits, digest)
                .algorithmID("0000").partyUInfo("0000").partyVInfo("0000").build());
        }
    }

    /** `parts` are `{namespace}name` with `Content` or `Element`; attachments have the name `attachments`. */
    private static void addParts(List<WSEncryptionPart> parts, Fields asked) {
        for (Fields one : asked.objects("parts")) {
            String name = one.text("name");
            String namespace = one.text("namespace");
            String modifier = one.text("modifier");
            parts.add("attachments".equals(name)
                ? new WSEncryptionPart("cid:Attachments", modifier)
                : new WSEncryptionPart(name, namespace, modifier));
        }
    }
}
