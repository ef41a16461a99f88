package org.postroad.interop.wss4j;

import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.Principal;
import java.security.Security;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.xml.namespace.QName;
import org.apache.wss4j.common.ext.Attachment;
import org.apache.wss4j.common.principal.UsernameTokenPrincipal;
import org.apache.wss4j.dom.WSConstants;
import org.apache.wss4j.dom.WSDataRef;
import org.apache.wss4j.dom.engine.WSSConfig;
import org.apache.wss4j.dom.engine.WSSecurityEngine;
import org.apache.wss4j.dom.engine.WSSecurityEngineResult;
import org.apache.wss4j.dom.handler.RequestData;
import org.apache.wss4j.dom.util.WSSecurityUtil;
import org.apache.xml.security.c14n.Canonicalizer;
import org.w3c.dom.Element;
import org.w3c.dom.Node;

/** Lets WSS4J check and decrypt messages, and reports what it accepted. */
final class Verifier {
    /** In seconds: WSS4J compares times with the clock of the machine, messages have fixed times. */
    private static final int ANY_AGE = Integer.MAX_VALUE / 2;

    private final Keys keys;
    private final Fields users;

    Verifier(Keys keys, Fields users) {
        this.keys = keys;
        this.users = users;
    }

    /** Checks one message; what WSS4J refuses has an `error` instead of what was signed. */
    Map<String, Object> verify(Fields message) throws Exception {
        Map<String, Object> report = new LinkedHashMap<>();
        byte[] body = Files.readAllBytes(Path.of(message.text("file")));
        try {
            SoapMessage soap = SoapMessage.read(message.text("content_type"), body);
            Attachments attachments = new Attachments(soap.attachments);
            List<WSSecurityEngineResult> results = new ArrayList<>();
            for (String role : message.texts("roles")) {
                results.addAll(process(soap, attachments, role.isEmpty() ? null : role, message));
            }
            report.put("signed", signed(results));
            report.put("decrypted", references(results, WSConstants.ENCR));
            report.put("users", users(results));
            report.put("attachments", digests(attachments.all()));
            report.put("body", content(WSSecurityUtil.findBodyElement(soap.envelope)));
        } catch (Exception error) {
            report.put("error", describe(error));
        }
        return report;
    }

    private List<WSSecurityEngineResult> process(
            SoapMessage soap, Attachments attachments, String role, Fields message) throws Exception {
        Element header = WSSecurityUtil.getSecurityHeader(soap.envelope, role);
        if (header == null) {
            throw new IllegalStateException("There is no Security header for the role " + role);
        }
        RequestData data = new RequestData();
        data.setWssConfig(WSSConfig.getNewInstance());
        data.setTimeStampTTL(ANY_AGE);
        data.setTimeStampFutureTTL(ANY_AGE);
        data.setUtTTL(ANY_AGE);
        data.setUtFutureTTL(ANY_AGE);
        data.setActor(role);
        data.setSigVerCrypto(keys.crypto());
        data.setDecCrypto(keys.crypto());
        data.setCallbackHandler(keys.passwords(users));
        data.setAttachmentCallbackHandler(attachments);
        data.setAllowRSA15KeyTransportAlgorithm(message.flag("allow_rsa15"));
        data.setExpandXopInclude(false);
        if (message.flag("bouncy_castle")) {
            // The JDK has no brainpool curves, and yet its provider is asked first.
            data.setSignatureProvider(Security.getProvider("BC"));
        }
        return new WSSecurityEngine().processSecurityHeader(header, data).getResults();
    }

    /** Lists what valid signatures cover: `{namespace}name` of elements, `cid:` of attachments. */
    private static List<String> signed(List<WSSecurityEngineResult> results) {
        return references(results, WSConstants.SIGN);
    }

    private static List<String> references(List<WSSecurityEngineResult> results, int action) {
        List<String> found = new ArrayList<>();
        for (WSSecurityEngineResult result : results) {
            Object listed = result.get(WSSecurityEngineResult.TAG_DATA_REF_URIS);
            if (action == (Integer) result.get(WSSecurityEngineResult.TAG_ACTION) && listed != null) {
                ((List<?>) listed).forEach(one -> found.add(name((WSDataRef) one)));
            }
        }
        return found;
    }

    private static String name(WSDataRef reference) {
        if (reference.isAttachment()) {
            return reference.getWsuId();
        }
        QName name = reference.getName();
        return name == null ? reference.getWsuId() : name.toString();
    }

    private static List<String> users(List<WSSecurityEngineResult> results) {
        List<String> found = new ArrayList<>();
        for (WSSecurityEngineResult result : results) {
            Principal principal = (Principal) result.get(WSSecurityEngineResult.TAG_PRINCIPAL);
            if (principal instanceof UsernameTokenPrincipal) {
                found.add(principal.getName());
            }
        }
        return found;
    }

    private static Map<String, Object> digests(List<Attachment> attachments) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (Attachment one : attachments) {
            try (InputStream in = one.getSourceStream()) {
                found.put(one.getId(), sha256(in.readAllBytes()));
            }
        }
        return found;
    }

    /** Returns the content of the Body in canonical form. */
    private static String content(Element body) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (Node child = body.getFirstChild(); child != null; child = child.getNextSibling()) {
            Canonicalizer.getInstance(Canonicalizer.ALGO_ID_C14N_EXCL_OMIT_COMMENTS)
                .canonicalizeSubtree(child, out);
        }
        return out.toString(java.nio.charset.StandardCharsets.UTF_8);
    }

    private static String sha256(byte[] content) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
    }

    static String describe(Throwable error) {
        StringBuilder said = new StringBuilder();
        for (Throwable one = error; one != null && said.length() < 2000; one = one.getCause()) {
            said.append(said.isEmpty() ? "" : "; caused by ").append(one);
        }
        return said.toString();
    }
}
