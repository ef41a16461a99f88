package org.postroad.interop.wss4j;

import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.wss4j.common.ext.Attachment;
import org.apache.xml.security.signature.Reference;
import org.apache.xml.security.signature.SignedInfo;
import org.apache.xml.security.signature.XMLSignature;
import org.apache.xml.security.signature.XMLSignatureByteInput;
import org.apache.xml.security.signature.XMLSignatureInput;
import org.apache.xml.security.transforms.Transforms;
import org.apache.xml.security.transforms.params.XPathContainer;
import org.apache.xml.security.utils.Constants;
import org.apache.xml.security.utils.resolver.ResourceResolverContext;
import org.apache.xml.security.utils.resolver.ResourceResolverSpi;
import org.w3c.dom.Document;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;

/** XML signatures of ebXML messages, checked and made by Santuario. */
final class Ebxml {
    private static final String C14N = Transforms.TRANSFORM_C14N_OMIT_COMMENTS;

    private final Keys keys;

    Ebxml(Keys keys) {
        this.keys = keys;
    }

    /** Checks the first signature of one message, and reports whether it and each reference hold. */
    Map<String, Object> verify(Fields message) throws Exception {
        Map<String, Object> report = new LinkedHashMap<>();
        try {
            byte[] body = Files.readAllBytes(Path.of(message.text("file")));
            SoapMessage soap = SoapMessage.read(message.text("content_type"), body);
            NodeList found = soap.envelope.getElementsByTagNameNS(Constants.SignatureSpecNS, "Signature");
            XMLSignature signature = new XMLSignature((Element) found.item(0), "", true);
            signature.addResourceResolver(new Parts(soap.attachments));
            // A certificate that is only named (issuer and serial, key identifier) is a known one.
            X509Certificate signer = signature.getKeyInfo().itemX509Data(0).containsCertificate()
                ? signature.getKeyInfo().getX509Certificate()
                : keys.certificate(message.text("signer"));
            report.put("valid", signature.checkSignatureValue(signer));
            report.put("subject", signer.getSubjectX500Principal().getName());
            SignedInfo info = signature.getSignedInfo();
            List<Object> references = new ArrayList<>();
            for (int number = 0; number < info.getLength(); number++) {
                Reference one = info.item(number);
                references.add(Map.of("uri", one.getURI(), "valid", info.getVerificationResult(number)));
            }
            report.put("references", references);
        } catch (Exception error) {
            report.put("error", Verifier.describe(error));
        }
        return report;
    }

    /** Signs one message: the whole document but what `xpath` leaves out, and every attachment. */
    Map<String, Object> sign(Fields message) throws Exception {
        Map<String, Object> report = new LinkedHashMap<>();
        try {
            byte[] body = Files.readAllBytes(Path.of(message.text("body")));
            SoapMessage soap = SoapMessage.read(message.text("body_type"), body);
            sign(soap, message);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            byte[] envelope = SoapMessage.serialize(soap.envelope);
            List<Attachment> sent = soap.attachments;
            for (Attachment one : sent) {
                one.getSourceStream().reset();
            }
            report.put("content_type", SoapMessage.write(envelope, "text/xml", sent, out));
            Files.write(Path.of(message.text("file")), out.toByteArray());
        } catch (Exception error) {
            report.put("error", Verifier.describe(error));
        }
        return report;
    }

    private void sign(SoapMessage soap, Fields message) throws Exception {
        Document document = soap.envelope;
        XMLSignature signature = new XMLSignature(document, "", message.text("algorithm"), C14N);
        Element header = (Element) document.getDocumentElement()
            .getElementsByTagNameNS("http://schemas.xmlsoap.org/soap/envelope/", "Header").item(0);
        header.appendChild(signature.getElement());
        signature.addResourceResolver(new Parts(soap.attachments));
        Transforms transforms = new Transforms(document);
        transforms.addTransform(Transforms.TRANSFORM_ENVELOPED_SIGNATURE);
        if (message.has("xpath")) {
            XPathContainer xpath = new XPathContainer(document);
            for (Map.Entry<String, Object> one : message.object("namespaces").values().entrySet()) {
                xpath.setXPathNamespaceContext(one.getKey(), (String) one.getValue());
            }
            xpath.setXPath(message.text("xpath"));
            transforms.addTransform(Transforms.TRANSFORM_XPATH, xpath.getElementPlusReturns());
        }
        if (!message.flag("no_c14n")) {
            transforms.addTransform(C14N);
        }
        signature.addDocument("", transforms, message.text("digest"));
        for (Attachment one : soap.attachments) {
            signature.addDocument("cid:" + one.getId(), null, message.text("digest"));
        }
        String alias = message.text("signer");
        signature.addKeyInfo(keys.certificate(alias));
        if (message.flag("key_value")) {
            signature.addKeyInfo(keys.certificate(alias).getPublicKey());
        }
        signature.sign(keys.key(alias));
    }

    /** Resolves `cid:` references to the attachments of the message. */
    private static final class Parts extends ResourceResolverSpi {
        private final Map<String, byte[]> contents = new LinkedHashMap<>();

        Parts(List<Attachment> attachments) throws Exception {
            for (Attachment one : attachments) {
                contents.put("cid:" + one.getId(), one.getSourceStream().readAllBytes());
                one.getSourceStream().reset();
            }
        }

        @Override
        public boolean engineCanResolveURI(ResourceResolverContext context) {
            return context.uriToResolve != null && contents.containsKey(context.uriToResolve);
        }

        @Override
        public XMLSignatureInput engineResolveURI(ResourceResolverContext context) {
            return new XMLSignatureByteInput(contents.get(context.uriToResolve));
        }
    }
}
