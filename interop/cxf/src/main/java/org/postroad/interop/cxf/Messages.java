package org.postroad.interop.cxf;

import jakarta.activation.DataHandler;
import jakarta.activation.DataSource;
import jakarta.mail.util.ByteArrayDataSource;
import jakarta.xml.soap.AttachmentPart;
import jakarta.xml.soap.MessageFactory;
import jakarta.xml.soap.MimeHeaders;
import jakarta.xml.soap.SOAPException;
import jakarta.xml.soap.SOAPMessage;
import jakarta.xml.ws.soap.SOAPBinding;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.xml.transform.OutputKeys;
import javax.xml.transform.Transformer;
import javax.xml.transform.TransformerException;
import javax.xml.transform.TransformerFactory;
import javax.xml.transform.stream.StreamResult;
import org.apache.cxf.attachment.AttachmentImpl;
import org.apache.cxf.message.Attachment;

/** SOAP messages with attachments as JSON values, both ways. */
final class Messages {
    static final String SOAP_11 = "http://schemas.xmlsoap.org/soap/envelope/";
    static final String SOAP_12 = "http://www.w3.org/2003/05/soap-envelope";

    private Messages() {
    }

    static String namespace(Options options) {
        return options.text("soap", "1.2").equals("1.1") ? SOAP_11 : SOAP_12;
    }

    static String binding(Options options) {
        boolean old = namespace(options).equals(SOAP_11);
        return old ? SOAPBinding.SOAP11HTTP_BINDING : SOAPBinding.SOAP12HTTP_BINDING;
    }

    static SOAPMessage read(Options options) throws SOAPException, IOException {
        byte[] envelope = options.text("envelope").getBytes(StandardCharsets.UTF_8);
        boolean old = options.text("envelope").contains(SOAP_11);
        String type = old ? "text/xml" : "application/soap+xml";
        MimeHeaders headers = new MimeHeaders();
        headers.addHeader("Content-Type", type + "; charset=UTF-8");
        MessageFactory factory = MessageFactory.newInstance(old ? "SOAP 1.1 Protocol" : "SOAP 1.2 Protocol");
        SOAPMessage message = factory.createMessage(headers, new ByteArrayInputStream(envelope));
        message.saveChanges();
        return message;
    }

    static List<Attachment> attachments(Options options) {
        List<Attachment> attachments = new ArrayList<>();
        for (Options one : options.list("attachments")) {
            byte[] content = Base64.getDecoder().decode(one.text("content"));
            DataSource source = new ByteArrayDataSource(content, one.text("type"));
            attachments.add(new AttachmentImpl(one.text("id"), new DataHandler(source)));
        }
        return attachments;
    }

    static Map<String, Object> write(SOAPMessage message) throws SOAPException, TransformerException {
        Map<String, Object> map = new LinkedHashMap<>();
        StringWriter text = new StringWriter();
        Transformer identity = TransformerFactory.newInstance().newTransformer();
        identity.setOutputProperty(OutputKeys.OMIT_XML_DECLARATION, "yes");
        identity.transform(message.getSOAPPart().getContent(), new StreamResult(text));
        map.put("envelope", text.toString());
        List<Object> attachments = new ArrayList<>();
        for (Iterator<AttachmentPart> parts = message.getAttachments(); parts.hasNext();) {
            AttachmentPart part = parts.next();
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("id", part.getContentId());
            one.put("type", part.getContentType());
            one.put("content", Base64.getEncoder().encodeToString(part.getRawContentBytes()));
            attachments.add(one);
        }
        map.put("attachments", attachments);
        return map;
    }
}
