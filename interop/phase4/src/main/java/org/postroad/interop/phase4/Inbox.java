package org.postroad.interop.phase4;

import com.helger.collection.commons.CommonsArrayList;
import com.helger.collection.commons.ICommonsList;
import com.helger.http.header.HttpHeaderMap;
import com.helger.json.IJsonArray;
import com.helger.json.IJsonObject;
import com.helger.json.JsonArray;
import com.helger.json.JsonObject;
import com.helger.mime.CMimeType;
import com.helger.phase4.attachment.AS4OutgoingAttachment;
import com.helger.phase4.attachment.WSS4JAttachment;
import com.helger.phase4.ebms3header.Ebms3SignalMessage;
import com.helger.phase4.ebms3header.Ebms3UserMessage;
import com.helger.phase4.error.AS4ErrorList;
import com.helger.phase4.incoming.IAS4IncomingMessageMetadata;
import com.helger.phase4.incoming.IAS4IncomingMessageState;
import com.helger.phase4.incoming.spi.AS4MessageProcessorResult;
import com.helger.phase4.incoming.spi.AS4SignalMessageProcessorResult;
import com.helger.phase4.incoming.spi.IAS4IncomingMessageProcessorSPI;
import com.helger.phase4.model.message.MessageHelperMethods;
import com.helger.phase4.model.pmode.IPMode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import org.w3c.dom.Node;

/** The application behind phase4's receiver: keeps what arrived and what waits to be pulled. */
public final class Inbox implements IAS4IncomingMessageProcessorSPI {
  private static final Object LOCK = new Object();
  private static final List<IJsonObject> MESSAGES = new ArrayList<>();
  private static final List<IJsonObject> SIGNALS = new ArrayList<>();
  private static final Map<String, Queue<IJsonObject>> OFFERED = new HashMap<>();

  @Override
  public AS4MessageProcessorResult processAS4UserMessage(
      IAS4IncomingMessageMetadata metadata,
      HttpHeaderMap headers,
      Ebms3UserMessage message,
      IPMode mode,
      Node body,
      ICommonsList<WSS4JAttachment> attachments,
      IAS4IncomingMessageState state,
      AS4ErrorList errors) {
    IJsonObject found;
    try {
      found = Describe.userMessage(message, attachments, metadata, state);
    } catch (RuntimeException error) {
      throw error;
    } catch (Exception error) {
      throw new IllegalStateException(error);
    }
    add(MESSAGES, found);
    Modes.Entry entry =
        Modes.find(found.getAsString("service"), found.getAsString("action"));
    boolean isReply = found.getAsString("refToMessageId") != null;
    if (entry == null || isReply || mode.getLeg2() == null) {
      return AS4MessageProcessorResult.createSuccess();
    }
    return AS4MessageProcessorResult.createSuccessExt(reply(entry, state), entry.replyUrl());
  }

  @Override
  public AS4SignalMessageProcessorResult processAS4SignalMessage(
      IAS4IncomingMessageMetadata metadata,
      HttpHeaderMap headers,
      Ebms3SignalMessage signal,
      IPMode mode,
      IAS4IncomingMessageState state,
      AS4ErrorList errors) {
    if (signal.getPullRequest() == null) {
      add(SIGNALS, Describe.signal(signal, state));
      return AS4SignalMessageProcessorResult.createSuccess();
    }
    IJsonObject offer = take(signal.getPullRequest().getMpc());
    if (offer == null) {
      return AS4SignalMessageProcessorResult.createSuccess();
    }
    Ebms3UserMessage message = pulled(offer);
    message.setMpc(signal.getPullRequest().getMpc());
    return AS4SignalMessageProcessorResult.createSuccess(null, null, message);
  }

  @Override
  public void processAS4ResponseMessage(
      IAS4IncomingMessageMetadata metadata,
      IAS4IncomingMessageState state,
      String messageId,
      byte[] response,
      boolean isAvailable,
      AS4ErrorList errors) {
    // The answer is seen by the partner; nothing is kept here.
  }

  /** Return the messages that arrived; with `messageId` or `refToMessageId` wait for such a one. */
  static IJsonObject messages(IJsonObject request) throws InterruptedException {
    return select("messages", MESSAGES, request);
  }

  /** Return the receipts and errors that arrived in requests of their own. */
  static IJsonObject signals(IJsonObject request) throws InterruptedException {
    return select("signals", SIGNALS, request);
  }

  /** Queue a message for the next PullRequest of a channel. */
  static void offer(IJsonObject message) {
    synchronized (LOCK) {
      OFFERED
          .computeIfAbsent(message.getAsString("mpc"), name -> new ArrayDeque<>())
          .add(message);
    }
  }

  private static IJsonObject take(String channel) {
    synchronized (LOCK) {
      Queue<IJsonObject> queue = OFFERED.get(channel);
      return queue == null ? null : queue.poll();
    }
  }

  private static void add(List<IJsonObject> target, IJsonObject found) {
    synchronized (LOCK) {
      target.add(found);
      LOCK.notifyAll();
    }
  }

  private static IJsonObject select(String name, List<IJsonObject> all, IJsonObject request)
      throws InterruptedException {
    long deadline = System.nanoTime() + 1_000_000_000L * request.getAsInt("timeout", 0);
    synchronized (LOCK) {
      while (true) {
        IJsonArray found = new JsonArray();
        all.stream().filter(one -> matches(one, request)).forEach(found::add);
        long left = (deadline - System.nanoTime()) / 1_000_000;
        if (!found.isEmpty() || left <= 0) {
          return new JsonObject().add(name, found);
        }
        LOCK.wait(left);
      }
    }
  }

  private static boolean matches(IJsonObject one, IJsonObject request) {
    for (String name : List.of("messageId", "refToMessageId")) {
      String wanted = request.getAsString(name);
      if (wanted != null && !wanted.equals(one.getAsString(name))) {
        return false;
      }
    }
    return true;
  }

  private static ICommonsList<WSS4JAttachment> reply(
      Modes.Entry entry, IAS4IncomingMessageState state) {
    ICommonsList<WSS4JAttachment> attachments = new CommonsArrayList<>();
    if (entry.replyPayload() != null) {
      AS4OutgoingAttachment payload =
          AS4OutgoingAttachment.builder()
              .data(entry.replyPayload().getBytes(StandardCharsets.UTF_8))
              .mimeType(CMimeType.APPLICATION_XML)
              .build();
      try {
        attachments.add(
            WSS4JAttachment.createOutgoingFileAttachment(payload, state.getResourceHelper()));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
    return attachments;
  }

  private static Ebms3UserMessage pulled(IJsonObject offer) {
    Ebms3UserMessage message = new Ebms3UserMessage();
    message.setMessageInfo(
        MessageHelperMethods.createEbms3MessageInfo(offer.getAsString("messageId"), null));
    message.setPartyInfo(
        MessageHelperMethods.createEbms3PartyInfo(
            offer.getAsString("fromRole"),
            offer.getAsString("from"),
            offer.getAsString("toRole"),
            offer.getAsString("to")));
    message.setCollaborationInfo(
        MessageHelperMethods.createEbms3CollaborationInfo(
            null,
            offer.getAsString("agreement"),
            null,
            null,
            offer.getAsString("service"),
            offer.getAsString("action"),
            offer.getAsString("conversationId")));
    return message;
  }
}
