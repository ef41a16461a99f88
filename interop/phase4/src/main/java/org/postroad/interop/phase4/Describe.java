package org.postroad.interop.phase4;

import com.helger.json.IJsonArray;
import com.helger.json.IJsonObject;
import com.helger.json.JsonArray;
import com.helger.json.JsonObject;
import com.helger.phase4.attachment.WSS4JAttachment;
import com.helger.phase4.ebms3header.Ebms3CollaborationInfo;
import com.helger.phase4.ebms3header.Ebms3Error;
import com.helger.phase4.ebms3header.Ebms3Property;
import com.helger.phase4.ebms3header.Ebms3SignalMessage;
import com.helger.phase4.ebms3header.Ebms3UserMessage;
import com.helger.phase4.incoming.IAS4IncomingMessageMetadata;
import com.helger.phase4.incoming.IAS4IncomingMessageState;
import java.io.InputStream;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.cert.X509Certificate;
import java.util.HexFormat;
import java.util.List;

/** Descriptions of received messages as JSON. */
final class Describe {
  private Describe() {}

  static IJsonObject userMessage(
      Ebms3UserMessage message,
      List<WSS4JAttachment> attachments,
      IAS4IncomingMessageMetadata metadata,
      IAS4IncomingMessageState state)
      throws Exception {
    Ebms3CollaborationInfo info = message.getCollaborationInfo();
    IJsonObject found = new JsonObject();
    found.add("messageId", message.getMessageInfo().getMessageId());
    found.add("refToMessageId", message.getMessageInfo().getRefToMessageId());
    found.add("from", message.getPartyInfo().getFrom().getPartyIdAtIndex(0).getValue());
    found.add("to", message.getPartyInfo().getTo().getPartyIdAtIndex(0).getValue());
    found.add("service", info.getService().getValue());
    found.add("action", info.getAction());
    found.add("conversationId", info.getConversationId());
    if (info.getAgreementRef() != null) {
      found.add("agreement", info.getAgreementRef().getValue());
      found.add("pmode", info.getAgreementRef().getPmode());
    }
    IJsonObject properties = new JsonObject();
    if (message.getMessageProperties() != null) {
      for (Ebms3Property one : message.getMessageProperties().getProperty()) {
        properties.add(one.getName(), one.getValue());
      }
    }
    found.add("properties", properties);
    found.add("payloads", payloads(attachments, state));
    security(found, state);
    if (metadata.hasRemoteTlsCerts()) {
      found.add("tlsClient", subject(metadata.remoteTlsCerts().getFirstOrNull()));
    }
    return found;
  }

  static IJsonObject signal(Ebms3SignalMessage signal, IAS4IncomingMessageState state) {
    IJsonObject found = new JsonObject();
    found.add("messageId", signal.getMessageInfo().getMessageId());
    found.add("refToMessageId", signal.getMessageInfo().getRefToMessageId());
    found.add("receipt", signal.getReceipt() != null);
    IJsonArray errors = new JsonArray();
    for (Ebms3Error one : signal.getError()) {
      IJsonObject error = new JsonObject();
      error.add("code", one.getErrorCode());
      error.add("severity", one.getSeverity());
      error.add("shortDescription", one.getShortDescription());
      error.add("detail", one.getErrorDetail());
      error.add("refToMessageInError", one.getRefToMessageInError());
      errors.add(error);
    }
    found.add("errors", errors);
    security(found, state);
    return found;
  }

  private static IJsonArray payloads(
      List<WSS4JAttachment> attachments, IAS4IncomingMessageState state) throws Exception {
    IJsonArray payloads = new JsonArray();
    if (attachments != null) {
      for (WSS4JAttachment one : attachments) {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        long size = 0;
        try (InputStream in = new DigestInputStream(one.getSourceStream(), digest)) {
          byte[] buffer = new byte[1 << 16];
          for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
            size += count;
          }
        }
        IJsonObject payload = new JsonObject();
        payload.add("contentId", one.getId());
        payload.add("size", size);
        payload.add("sha256", HexFormat.of().formatHex(digest.digest()));
        payload.add("mimeType", one.getUncompressedMimeType());
        payload.add("compressed", state.containsCompressedAttachmentID(one.getId()));
        payloads.add(payload);
      }
    }
    return payloads;
  }

  private static void security(IJsonObject found, IAS4IncomingMessageState state) {
    found.add("signed", state.isSoapSignatureChecked());
    found.add("signer", subject(state.getSigningCertificate()));
    found.add("reference", String.valueOf(state.getSigningCertificateReferenceType()));
    found.add("encrypted", state.isSoapDecrypted());
  }

  static String subject(X509Certificate certificate) {
    return certificate == null ? null : certificate.getSubjectX500Principal().getName();
  }
}
