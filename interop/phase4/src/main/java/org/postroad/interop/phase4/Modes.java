package org.postroad.interop.phase4;

import com.helger.json.IJsonObject;
import com.helger.phase4.crypto.ECryptoAlgorithmCrypt;
import com.helger.phase4.crypto.ECryptoAlgorithmSign;
import com.helger.phase4.crypto.ECryptoAlgorithmSignDigest;
import com.helger.phase4.mgr.MetaAS4Manager;
import com.helger.phase4.model.EMEP;
import com.helger.phase4.model.EMEPBinding;
import com.helger.phase4.model.ESoapVersion;
import com.helger.phase4.model.mpc.MPC;
import com.helger.phase4.model.pmode.IPMode;
import com.helger.phase4.model.pmode.PMode;
import com.helger.phase4.model.pmode.PModeParty;
import com.helger.phase4.model.pmode.leg.EPModeSendReceiptReplyPattern;
import com.helger.phase4.model.pmode.leg.PModeLeg;
import com.helger.phase4.model.pmode.leg.PModeLegBusinessInformation;
import com.helger.phase4.model.pmode.leg.PModeLegErrorHandling;
import com.helger.phase4.model.pmode.leg.PModeLegProtocol;
import com.helger.phase4.model.pmode.leg.PModeLegSecurity;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The P-Modes of the receiver. They are found by service and action, and for pulling by MPC. */
final class Modes {
  /** A P-Mode, where replies are pushed to, and the payload of the reply. */
  record Entry(IPMode mode, String replyUrl, String replyPayload) {}

  private static final Map<String, Entry> BY_ACTION = new ConcurrentHashMap<>();
  private static final Map<String, Entry> BY_CHANNEL = new ConcurrentHashMap<>();

  private Modes() {}

  static void put(IJsonObject request) {
    String binding = request.getAsString("binding", "push");
    EMEPBinding bound = EMEPBinding.getFromIDOrNull(binding);
    if (bound == null) {
      throw new IllegalArgumentException("Unknown binding '" + binding + "'");
    }
    String channel = request.getAsString("mpc");
    if (channel != null && !MetaAS4Manager.getMPCMgr().containsWithID(channel)) {
      MetaAS4Manager.getMPCMgr().createMPC(new MPC(channel));
    }
    boolean twoWay = bound.getRequiredLegs() == 2;
    PMode mode =
        new PMode(
            request.getAsString("id"),
            party(request, "from"),
            party(request, "to"),
            request.getAsString("agreement", ""),
            twoWay ? EMEP.TWO_WAY : EMEP.ONE_WAY,
            bound,
            leg(request),
            twoWay ? leg(request) : null,
            null,
            null);
    Entry entry =
        new Entry(mode, request.getAsString("replyUrl"), request.getAsString("replyPayload"));
    BY_ACTION.put(key(request.getAsString("service"), request.getAsString("action")), entry);
    if (channel != null) {
      BY_CHANNEL.put(channel, entry);
    }
  }

  static Entry find(String service, String action) {
    return BY_ACTION.get(key(service, action));
  }

  static IPMode mode(String service, String action) {
    Entry found = find(service, action);
    return found == null ? null : found.mode();
  }

  static IPMode ofChannel(String mpc) {
    Entry found = BY_CHANNEL.get(mpc);
    return found == null ? null : found.mode();
  }

  private static String key(String service, String action) {
    return service + " " + action;
  }

  private static PModeParty party(IJsonObject request, String which) {
    return new PModeParty(
        null, request.getAsString(which), request.getAsString(which + "Role"), null, null);
  }

  private static PModeLeg leg(IJsonObject request) {
    PModeLegErrorHandling errors = PModeLegErrorHandling.createUndefined();
    errors.setReportAsResponse(true);
    PModeLegSecurity security = new PModeLegSecurity();
    String sign = request.getAsString("sign");
    if (sign != null) {
      security.setX509SignatureAlgorithm(ECryptoAlgorithmSign.getFromIDOrThrow(sign));
      security.setX509SignatureHashFunction(ECryptoAlgorithmSignDigest.DIGEST_SHA_256);
    }
    String encrypt = request.getAsString("encrypt");
    if (encrypt != null) {
      security.setX509EncryptionAlgorithm(ECryptoAlgorithmCrypt.getFromIDOrThrow(encrypt));
    }
    security.setSendReceipt(true);
    security.setSendReceiptReplyPattern(EPModeSendReceiptReplyPattern.RESPONSE);
    security.setSendReceiptNonRepudiation(sign != null);
    return new PModeLeg(
        new PModeLegProtocol(request.getAsString("url"), ESoapVersion.SOAP_12),
        PModeLegBusinessInformation.create(
            request.getAsString("service"),
            request.getAsString("action"),
            null,
            request.getAsString("mpc")),
        errors,
        null,
        security);
  }
}
