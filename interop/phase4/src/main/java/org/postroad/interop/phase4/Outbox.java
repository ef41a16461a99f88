package org.postroad.interop.phase4;

import com.helger.httpclient.HttpClientSettings;
import com.helger.json.IJsonArray;
import com.helger.json.IJsonObject;
import com.helger.json.JsonArray;
import com.helger.json.JsonObject;
import com.helger.mime.parse.MimeTypeParser;
import com.helger.phase4.attachment.AS4OutgoingAttachment;
import com.helger.phase4.attachment.IAS4IncomingAttachmentFactory;
import com.helger.phase4.client.AS4ClientReceiptMessage;
import com.helger.phase4.client.AS4ClientSentMessage;
import com.helger.phase4.crypto.AS4CryptParams;
import com.helger.phase4.crypto.AS4SigningParams;
import com.helger.phase4.crypto.ECryptoAlgorithmCrypt;
import com.helger.phase4.crypto.ECryptoAlgorithmSign;
import com.helger.phase4.crypto.ECryptoAlgorithmSignDigest;
import com.helger.phase4.crypto.ECryptoKeyIdentifierType;
import com.helger.phase4.ebms3header.Ebms3UserMessage;
import com.helger.phase4.messaging.http.HttpRetrySettings;
import com.helger.phase4.incoming.AS4IncomingHandler;
import com.helger.phase4.incoming.AS4IncomingMessageMetadata;
import com.helger.phase4.incoming.AS4IncomingProfileSelectorConstant;
import com.helger.phase4.incoming.AS4IncomingReceiverConfiguration;
import com.helger.phase4.incoming.IAS4IncomingProfileSelector;
import com.helger.phase4.incoming.IAS4UserMessageConsumer;
import com.helger.phase4.incoming.crypto.AS4IncomingSecurityConfiguration;
import com.helger.phase4.model.ESoapVersion;
import com.helger.phase4.model.MessageProperty;
import com.helger.phase4.model.pmode.IPMode;
import com.helger.phase4.model.pmode.resolve.IAS4PModeResolver;
import com.helger.phase4.sender.AS4Sender;
import com.helger.phase4.sender.AbstractAS4MessageBuilder;
import com.helger.phase4.sender.EAS4UserMessageSendResult;
import com.helger.phase4.sender.IAS4SignalMessageValidationResultHandler;
import com.helger.phase4.util.AS4ResourceHelper;
import com.helger.phase4.util.Phase4Exception;
import com.helger.web.scope.mgr.WebScoped;
import java.io.File;
import java.time.Duration;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.hc.core5.http.HttpResponse;
import org.apache.hc.core5.http.message.BasicHttpResponse;
import org.w3c.dom.Document;

/** Sends user messages and PullRequests and says what phase4 made of the answer. */
final class Outbox {
  static final IAS4PModeResolver MODES =
      (id, service, action, initiator, responder, agreement, address) ->
          Modes.mode(service, action);
  static final IAS4IncomingProfileSelector NO_PROFILE =
      new AS4IncomingProfileSelectorConstant(null, false);

  private Outbox() {}

  static IJsonObject send(IJsonObject request) throws Exception {
    IJsonObject answer = new JsonObject();
    try (WebScoped scope = new WebScoped()) {
      AS4Sender.BuilderUserMessage builder = AS4Sender.builderUserMessage();
      prepare(builder, request, answer);
      encryption(builder.cryptParams(), request);
      builder
          .pmode(mode(request))
          .agreementRef(request.getAsString("agreement"))
          .pmodeID(request.getAsString("pmode"))
          .service(request.getAsString("serviceType"), request.getAsString("service"))
          .action(request.getAsString("action"))
          .fromPartyID(request.getAsString("from"))
          .fromPartyIDType(request.getAsString("fromType"))
          .fromRole(request.getAsString("fromRole"))
          .toPartyID(request.getAsString("to"))
          .toPartyIDType(request.getAsString("toType"))
          .toRole(request.getAsString("toRole"))
          .conversationID(request.getAsString("conversationId"))
          .endpointURL(request.getAsString("url"))
          .signalMsgValidationResultHdl(comparison(answer))
          .signalMsgConsumer(
              (signal, metadata, state) -> answer.add("signal", Describe.signal(signal, state)));
      IJsonObject properties = request.getAsObject("properties");
      if (properties != null) {
        properties.forEach(
            (name, value) ->
                builder.addMessageProperty(
                    MessageProperty.builder()
                        .name(name)
                        .value(value.getAsValue().getAsString())));
      }
      IJsonArray payloads = request.getAsArray("payloads");
      for (int at = 0; payloads != null && at < payloads.size(); at++) {
        builder.addAttachment(attachment(payloads.getObjectAtIndex(at)));
      }
      AtomicReference<AS4ClientSentMessage<byte[]>> sent = new AtomicReference<>();
      builder.rawResponseConsumer(
          message -> {
            sent.set(message);
            answer.add("messageId", message.getMessageID());
            if (message.hasResponseStatusLine()) {
              answer.add("status", message.getResponseStatusLine().getStatusCode());
            }
          });
      EAS4UserMessageSendResult result =
          builder.sendMessageAndCheckForReceipt(error -> failed(answer, error));
      answer.add("result", result.name());
      if (request.getAsBoolean("replyExpected", false) && sent.get() != null) {
        reply(request, sent.get(), answer);
      }
    }
    return answer;
  }

  static IJsonObject pull(IJsonObject request) throws Exception {
    IJsonObject answer = new JsonObject();
    try (WebScoped scope = new WebScoped()) {
      AS4Sender.BuilderPullRequest builder = AS4Sender.builderPullRequest();
      prepare(builder, request, answer);
      builder
          .pmode(mode(request))
          .mpc(request.getAsString("mpc"))
          .endpointURL(request.getAsString("url"))
          .signalMsgValidationResultHdl(comparison(answer))
          .userMsgConsumer(
              (message, metadata, state) -> {
                consumer(answer).handleUserMessage(message, metadata, state);
                if (request.getAsBoolean("receipt", false)) {
                  receipt(request, message, state.getOriginalSoapDocument(), answer);
                }
              })
          .signalMsgConsumer(
              (signal, metadata, state) -> answer.add("signal", Describe.signal(signal, state)));
      builder.rawResponseConsumer(
          message -> {
            answer.add("messageId", message.getMessageID());
            if (message.hasResponseStatusLine()) {
              answer.add("status", message.getResponseStatusLine().getStatusCode());
            }
          });
      try {
        answer.add("result", builder.sendMessage().name());
      } catch (Phase4Exception error) {
        failed(answer, error);
      }
    }
    return answer;
  }

  /** phase4 does not answer what it pulled by itself: send the receipt as a request of its own. */
  private static void receipt(
      IJsonObject request, Ebms3UserMessage message, Document envelope, IJsonObject answer) {
    KeySet keys = KeySet.named(request.getAsString("keys"));
    try (AS4ResourceHelper resources = new AS4ResourceHelper()) {
      AS4ClientReceiptMessage receipt = new AS4ClientReceiptMessage(resources);
      boolean signed = request.getAsString("sign") != null;
      receipt
          .setCryptoFactory(keys.sign())
          .setSoapVersion(ESoapVersion.SOAP_12)
          .setRefToMessageID(message.getMessageInfo().getMessageId());
      receipt
          .setEbms3UserMessage(message)
          .setSoapDocument(envelope)
          .setNonRepudiation(signed)
          .setReceiptShouldBeSigned(signed);
      signing(receipt.signingParams(), request);
      AS4ClientSentMessage<Integer> sent =
          receipt.sendMessageWithRetries(
              request.getAsString("url"), HttpResponse::getCode, null, null, null);
      answer.add("receiptStatus", sent.getResponseContent());
    } catch (Exception error) {
      failed(answer, error);
    }
  }

  /** The P-Mode of the sender: it decides which algorithms phase4 accepts in the answer. */
  private static IPMode mode(IJsonObject request) {
    return Modes.mode(request.getAsString("service"), request.getAsString("action"));
  }

  private static void prepare(
      AbstractAS4MessageBuilder<?> builder, IJsonObject request, IJsonObject answer)
      throws Exception {
    KeySet keys = KeySet.named(request.getAsString("keys"));
    builder
        .httpClientFactory(client(request))
        .cryptoFactorySign(keys.sign())
        .cryptoFactoryCrypt(keys.decrypt())
        .as4ProfileID("none")
        .pmodeResolver(MODES)
        .incomingProfileSelector(NO_PROFILE)
        .messageID(request.getAsString("messageId"))
        .refToMessageID(request.getAsString("refToMessageId"));
    int retries = request.getAsInt("retries", 0);
    if (retries > 0) {
      builder.httpRetrySettings(
          new HttpRetrySettings()
              .setMaxRetries(retries)
              .setDurationBeforeRetry(Duration.ofMillis(100)));
    }
    signing(builder.signingParams(), request);
  }

  private static HttpClientSettings client(IJsonObject request) throws Exception {
    HttpClientSettings settings = new HttpClientSettings();
    settings.setRetryCount(0);
    IJsonObject tls = request.getAsObject("tls");
    if (tls != null) {
      settings.setSSLContext(KeySet.sslContext(tls));
    }
    return settings;
  }

  static void signing(AS4SigningParams params, IJsonObject request) {
    String algorithm = request.getAsString("sign");
    if (algorithm == null) {
      return;
    }
    params
        .setSecurityProvider(KeySet.named(request.getAsString("keys")).provider())
        .setAlgorithmSign(ECryptoAlgorithmSign.getFromIDOrThrow(algorithm))
        .setAlgorithmSignDigest(ECryptoAlgorithmSignDigest.DIGEST_SHA_256);
    String token = request.getAsString("token", "bst");
    params.setUseSingleCertificate(!token.equals("pkipath"));
    params.setKeyIdentifierType(
        ECryptoKeyIdentifierType.getFromIDOrThrow(token.equals("pkipath") ? "bst" : token));
  }

  private static void encryption(AS4CryptParams params, IJsonObject request) throws Exception {
    String algorithm = request.getAsString("encrypt");
    if (algorithm == null) {
      return;
    }
    params
        .setAlgorithmCrypt(ECryptoAlgorithmCrypt.getFromIDOrThrow(algorithm))
        .setCertificate(KeySet.certificate(request.getAsString("encryptFor")))
        .setKeyIdentifierType(
            ECryptoKeyIdentifierType.getFromIDOrThrow(request.getAsString("keyToken", "bst")));
    switch (request.getAsString("keyAgreement", "none")) {
      case "ecdh-es" -> params.setEDelivery2KeyAgreementECDHES();
      case "x25519" -> params.setEDelivery2KeyAgreementX25519();
      default -> { }
    }
  }

  private static AS4OutgoingAttachment attachment(IJsonObject payload) {
    AS4OutgoingAttachment.Builder builder =
        AS4OutgoingAttachment.builder()
            .data(new File(payload.getAsString("file")))
            .mimeType(
                MimeTypeParser.safeParseMimeType(
                    payload.getAsString("mimeType", "application/xml")));
    if (payload.getAsString("contentId") != null) {
      builder.contentID(payload.getAsString("contentId"));
    }
    if (payload.getAsBoolean("compress", false)) {
      builder.compressionGZIP();
    }
    return builder.build();
  }

  private static IAS4SignalMessageValidationResultHandler comparison(IJsonObject answer) {
    IJsonArray problems = new JsonArray();
    answer.add("comparisonProblems", problems);
    return new IAS4SignalMessageValidationResultHandler() {
      @Override
      public void onSuccess() {
        answer.add("comparison", "equal");
      }

      @Override
      public void onError(String problem) {
        answer.add("comparison", "different");
        problems.add(problem);
      }

      @Override
      public void onNotApplicable() {
        answer.add("comparison", "not applicable");
      }
    };
  }

  private static IAS4UserMessageConsumer consumer(IJsonObject answer) {
    return (message, metadata, state) -> {
      try {
        answer.add(
            "message",
            Describe.userMessage(
                message,
                state.hasDecryptedAttachments()
                    ? state.getDecryptedAttachments()
                    : state.getOriginalAttachments(),
                metadata,
                state));
      } catch (Exception error) {
        failed(answer, error);
      }
    };
  }

  /** Read the answer once more, as a user message: the sender itself only looks for a signal. */
  private static void reply(
      IJsonObject request, AS4ClientSentMessage<byte[]> sent, IJsonObject answer)
      throws Exception {
    KeySet keys = KeySet.named(request.getAsString("keys"));
    BasicHttpResponse response = new BasicHttpResponse(200);
    sent.getResponseHeaders().forEachSingleHeader(response::addHeader, false);
    AS4SigningParams signing = new AS4SigningParams();
    signing(signing, request);
    try (AS4ResourceHelper resources = new AS4ResourceHelper()) {
      AS4IncomingHandler.parseUserOrSignalMessage(
          keys.sign(),
          keys.decrypt(),
          MODES,
          IAS4IncomingAttachmentFactory.DEFAULT_INSTANCE,
          NO_PROFILE,
          resources,
          mode(request),
          Locale.US,
          AS4IncomingMessageMetadata.createForResponse(sent.getMessageID()),
          response,
          sent.getResponseContent(),
          null,
          new AS4IncomingSecurityConfiguration()
              .setSigningParams(signing)
              .setCryptParams(new AS4CryptParams()),
          new AS4IncomingReceiverConfiguration(),
          consumer(answer),
          null);
    } catch (Phase4Exception error) {
      failed(answer, error);
    }
  }

  private static void failed(IJsonObject answer, Throwable error) {
    IJsonArray causes = new JsonArray();
    for (Throwable at = error; at != null; at = at.getCause()) {
      causes.add(at.toString());
    }
    answer.add("exceptions", causes);
  }
}
