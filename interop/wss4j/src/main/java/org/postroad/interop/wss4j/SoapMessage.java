package org.postroad.interop.wss4j;

import jakarta.activation.DataHandler;
import jakarta.mail.internet.ContentType;
import jakarta.mail.internet.InternetHeaders;
import jakarta.mail.internet.MimeBodyPart;
import jakarta.mail.internet.MimeMultipart;
import jakarta.mail.util.ByteArrayDataSource;
import jakarta.mail.Header;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.parsers.ParserConfigurationException;
import javax.xml.transform.TransformerFactory;
import javax.xml.transform.dom.DOMSource;
import javax.xml.transform.stream.StreamResult;
import org.apache.wss4j.common.ext.Attachment;
import org.w3c.dom.Document;

/** A SOAP message with its attachments, read from and written to HTTP bodies by Jakarta Mail. */
final class SoapMessage {
    private static final DocumentBuilderFactory BUILDERS = builders();
    private static final TransformerFactory TRANSFORMERS = TransformerFactory.newInstance();

    final Document envelope;
    final List<Attachment> attachments;

    SoapMessage(Document envelope, List<Attachment> attachments) {
        this.envelope = envelope;
        this.attachments = attachments;
    }

    private static DocumentBuilderFactory builders() {
        DocumentBuilderFactory factory = DocumentBuilderFactory.newInstance();
        factory.setNamespaceAware(true);
        try {
            factory.setFeature("http://apache.org/xml/features/disallow-doctype-decl", true);
        } catch (ParserConfigurationException error) {
            throw new IllegalStateException(error);
        }
        return factory;
    }

    static Document parse(byte[] xml) throws Exception {
        return BUILDERS.newDocumentBuilder().parse(new ByteArrayInputStream(xml));
    }

    static byte[] serialize(Document document) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        TRANSFORMERS.newTransformer()
            .transform(new DOMSource(document), new StreamResult(out));
        return out.toByteArray();
    }

    static SoapMessage read(String contentType, byte[] body) throws Exception {
        if (!new ContentType(contentType).match("multipart/related")) {
            return new SoapMessage(parse(body), List.of());
        }
        MimeMultipart parts = new MimeMultipart(new ByteArrayDataSource(body, contentType));
        List<Attachment> attachments = new ArrayList<>();
        for (int number = 1; number < parts.getCount(); number++) {
            attachments.add(attachment((MimeBodyPart) parts.getBodyPart(number)));
        }
        byte[] root = parts.getBodyPart(0).getInputStream().readAllBytes();
        return new SoapMessage(parse(root), attachments);
    }

    private static Attachment attachment(MimeBodyPart part) throws Exception {
        Attachment attachment = new Attachment();
        attachment.setId(part.getContentID().replaceAll("^<|>$", ""));
        attachment.setMimeType(part.getContentType());
        for (Header one : Collections.list(part.getAllHeaders())) {
            attachment.addHeader(one.getName(), one.getValue());
        }
        attachment.setSourceStream(new ByteArrayInputStream(part.getInputStream().readAllBytes()));
        return attachment;
    }

    /** Writes the HTTP body and returns its Content-Type. */
    static String write(byte[] envelope, String type, List<Attachment> attachments, ByteArrayOutputStream out)
            throws Exception {
        if (attachments.isEmpty()) {
            out.write(envelope);
            return type + "; charset=UTF-8";
        }
        MimeMultipart parts = new MimeMultipart("related");
        InternetHeaders root = new InternetHeaders();
        root.setHeader("Content-Type", type + "; charset=UTF-8");
        root.setHeader("Content-ID", "<root@peer.example>");
        root.setHeader("Content-Transfer-Encoding", "binary");
        parts.addBodyPart(new MimeBodyPart(root, envelope));
        for (Attachment one : attachments) {
            byte[] content = one.getSourceStream().readAllBytes();
            MimeBodyPart part = new MimeBodyPart();
            part.setDataHandler(new DataHandler(new ByteArrayDataSource(content, one.getMimeType())));
            one.getHeaders().forEach((name, value) -> setHeader(part, name, value));
            setHeader(part, "Content-Type", one.getMimeType());
            setHeader(part, "Content-ID", "<" + one.getId() + ">");
            setHeader(part, "Content-Transfer-Encoding", "binary");
            parts.addBodyPart(part);
        }
        ContentType kind = new ContentType(parts.getContentType());
        kind.setParameter("type", type);
        kind.setParameter("start", "<root@peer.example>");
        parts.writeTo(out);
        return kind.toString().replaceAll("\\s+", " ");
    }

    private static void setHeader(MimeBodyPart part, String name, String value) {
        try {
            part.setHeader(name, value);
        } catch (jakarta.mail.MessagingException error) {
            throw new IllegalStateException(error);
        }
    }
}
