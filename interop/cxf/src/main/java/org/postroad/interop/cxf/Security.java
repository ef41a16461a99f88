package org.postroad.interop.cxf;

import java.security.Principal;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import javax.security.auth.callback.CallbackHandler;
import org.apache.cxf.Bus;
import org.apache.cxf.ws.security.wss4j.WSS4JInInterceptor;
import org.apache.cxf.ws.security.wss4j.WSS4JOutInterceptor;
import org.apache.wss4j.common.ConfigurationConstants;
import org.apache.wss4j.common.ext.WSPasswordCallback;
import org.apache.wss4j.dom.WSDataRef;
import org.apache.wss4j.dom.engine.WSSecurityEngineResult;
import org.apache.wss4j.dom.handler.WSHandlerConstants;
import org.apache.wss4j.dom.handler.WSHandlerResult;

/** XML signatures by WSS4J: what signs, what verifies, and what a verified signature covers. */
final class Security {
    private static final String CRYPTO = "crypto";
    private static final String MERLIN = "org.apache.wss4j.crypto.merlin.";
    private static final String RM = "{http://docs.oasis-open.org/ws-rx/wsrm/200702}";
    private static final String EBMS =
        "{http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/}";
    private static final String ADDRESSING = "{http://www.w3.org/2005/08/addressing}";
    private static final String UTILITY =
        "{http://docs.oasis-open.org/wss/2004/01/oasis-200401-wss-wssecurity-utility-1.0.xsd}";
    private static final String ELEMENT = "{Element}";

    private Security() {
    }

    /** Signs Body, eb:Messaging, attachments, and headers of WS-Addressing and WS-RM. */
    private static WSS4JOutInterceptor signing(Options options, String soap) {
        Map<String, Object> properties = common(options);
        properties.put(ConfigurationConstants.ACTION, "Timestamp Signature");
        properties.put(ConfigurationConstants.USER, options.text("alias"));
        String password = options.text("password");
        CallbackHandler callbacks = asked -> {
            for (Object one : asked) {
                ((WSPasswordCallback) one).setPassword(password);
            }
        };
        properties.put(ConfigurationConstants.PW_CALLBACK_REF, callbacks);
        properties.put(ConfigurationConstants.SIG_KEY_ID, options.text("reference", "DirectReference"));
        properties.put(ConfigurationConstants.SIG_ALGO, "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256");
        properties.put(ConfigurationConstants.SIG_DIGEST_ALGO, "http://www.w3.org/2001/04/xmlenc#sha256");
        properties.put(
            ConfigurationConstants.SIGNATURE_PARTS, ELEMENT + "{" + soap + "}Body;{}cid:Attachments");
        List<String> optional = new ArrayList<>();
        optional.add(ELEMENT + EBMS + "Messaging");
        optional.add(ELEMENT + UTILITY + "Timestamp");
        for (String name : List.of("Sequence", "AckRequested", "SequenceAcknowledgement")) {
            optional.add(ELEMENT + RM + name);
        }
        for (String name : List.of("To", "Action", "MessageID", "RelatesTo", "ReplyTo")) {
            optional.add(ELEMENT + ADDRESSING + name);
        }
        properties.put(ConfigurationConstants.OPTIONAL_SIGNATURE_PARTS, String.join(";", optional));
        return new WSS4JOutInterceptor(properties);
    }

    /** Signs and verifies everything that passes a bus, messages of WS-RM itself included. */
    static void install(Bus bus, Options options, String soap) {
        bus.getInInterceptors().add(verifying(options));
        bus.getOutInterceptors().add(signing(options, soap));
        bus.getOutFaultInterceptors().add(signing(options, soap));
    }

    private static WSS4JInInterceptor verifying(Options options) {
        Map<String, Object> properties = common(options);
        properties.put(ConfigurationConstants.ACTION, "Timestamp Signature");
        return new WSS4JInInterceptor(properties);
    }

    private static Map<String, Object> common(Options options) {
        Properties crypto = new Properties();
        crypto.setProperty("org.apache.wss4j.crypto.provider", "org.apache.wss4j.common.crypto.Merlin");
        crypto.setProperty(MERLIN + "keystore.file", options.text("keystore"));
        crypto.setProperty(MERLIN + "keystore.type", "PKCS12");
        crypto.setProperty(MERLIN + "keystore.password", options.text("password"));
        crypto.setProperty(MERLIN + "truststore.file", options.text("truststore"));
        crypto.setProperty(MERLIN + "truststore.type", "PKCS12");
        crypto.setProperty(MERLIN + "truststore.password", options.text("password"));
        Map<String, Object> properties = new HashMap<>();
        properties.put(ConfigurationConstants.SIG_PROP_REF_ID, CRYPTO);
        properties.put(ConfigurationConstants.SIG_VER_PROP_REF_ID, CRYPTO);
        properties.put(CRYPTO, crypto);
        return properties;
    }

    /** Who signed a message that WSS4J has verified, and the names of what is signed. */
    static Object verified(Map<String, Object> message) {
        Map<String, Object> found = new LinkedHashMap<>();
        List<Object> covered = new ArrayList<>();
        Object results = message.get(WSHandlerConstants.RECV_RESULTS);
        if (!(results instanceof List<?> handled)) {
            return null;
        }
        for (Object one : handled) {
            for (WSSecurityEngineResult result : ((WSHandlerResult) one).getResults()) {
                Object principal = result.get(WSSecurityEngineResult.TAG_PRINCIPAL);
                if (principal instanceof Principal signer) {
                    found.put("signer", signer.getName());
                }
                Object references = result.get(WSSecurityEngineResult.TAG_DATA_REF_URIS);
                if (references instanceof List<?> list) {
                    for (Object reference : list) {
                        WSDataRef data = (WSDataRef) reference;
                        covered.add(data.isAttachment() ? data.getWsuId() : data.getName().toString());
                    }
                }
            }
        }
        found.put("covered", covered);
        return found;
    }
}
