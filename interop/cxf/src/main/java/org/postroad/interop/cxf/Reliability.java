package org.postroad.interop.cxf;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.xml.namespace.QName;
import org.apache.cxf.Bus;
import org.apache.cxf.feature.Feature;
import org.apache.cxf.ws.addressing.WSAddressingFeature;
import org.apache.cxf.ws.rm.DestinationSequence;
import org.apache.cxf.ws.rm.ManagedRMEndpoint;
import org.apache.cxf.ws.rm.RM11Constants;
import org.apache.cxf.ws.rm.RMConfiguration;
import org.apache.cxf.ws.rm.RMConfiguration.DeliveryAssurance;
import org.apache.cxf.ws.rm.RMEndpoint;
import org.apache.cxf.ws.rm.RMManager;
import org.apache.cxf.ws.rm.SourceSequence;
import org.apache.cxf.ws.rm.feature.RMFeature;
import org.apache.cxf.ws.rm.manager.AckRequestModeType;
import org.apache.cxf.ws.rm.manager.AcksPolicyType;
import org.apache.cxf.ws.rm.manager.DestinationPolicyType;
import org.apache.cxf.ws.rm.manager.SourcePolicyType;
import org.apache.cxf.ws.rm.v200702.SequenceAcknowledgement.AcknowledgementRange;

/** WS-ReliableMessaging of one bus: how it is configured, and which sequences there are. */
final class Reliability {
    private final RMManager manager;
    private final QName service;

    Reliability(Bus bus, QName service, Options options) {
        this.service = service;
        manager = bus.getExtension(RMManager.class);
        RMConfiguration configuration = new RMConfiguration();
        configuration.setRMNamespace(options.text("namespace", RM11Constants.NAMESPACE_URI));
        configuration.setDeliveryAssurance(DeliveryAssurance.EXACTLY_ONCE);
        configuration.setInOrder(options.flag("in_order", false));
        configuration.setBaseRetransmissionInterval(options.number("retransmission_interval", 300));
        configuration.setAcknowledgementInterval(options.number("acknowledgement_interval", 0));
        configuration.setExponentialBackoff(false);
        manager.setConfiguration(configuration);
        SourcePolicyType source = new SourcePolicyType();
        source.setIncludeOffer(options.flag("offer", true));
        source.setAckRequestMode(AckRequestModeType.fromValue(options.text("ack_requested", "pending")));
        manager.setSourcePolicy(source);
        DestinationPolicyType destination = new DestinationPolicyType();
        destination.setAcksPolicy(new AcksPolicyType());
        destination.setMaxSequences((int) options.number("max_sequences", 0));
        manager.setDestinationPolicy(destination);
    }

    static List<Feature> features() {
        return List.of(new WSAddressingFeature(), new RMFeature());
    }

    private RMEndpoint endpoint() {
        return manager.findReliableEndpoint(service);
    }

    ManagedRMEndpoint managed() {
        return new ManagedRMEndpoint(endpoint());
    }

    /** Identifiers of the source sequences that are not over. */
    List<String> sources() {
        List<String> found = new ArrayList<>();
        for (SourceSequence sequence : endpoint().getSource().getAllSequences()) {
            found.add(sequence.getIdentifier().getValue());
        }
        return found;
    }

    Object sequences() {
        List<Object> sources = new ArrayList<>();
        List<Object> destinations = new ArrayList<>();
        RMEndpoint endpoint = endpoint();
        if (endpoint != null) {
            for (SourceSequence one : endpoint.getSource().getAllSequences()) {
                Map<String, Object> map = new LinkedHashMap<>();
                map.put("identifier", one.getIdentifier().getValue());
                map.put("sent", one.getCurrentMessageNr());
                map.put("unacknowledged", manager.getRetransmissionQueue().countUnacknowledged(one));
                sources.add(map);
            }
            for (DestinationSequence one : endpoint.getDestination().getAllSequences()) {
                Map<String, Object> map = new LinkedHashMap<>();
                map.put("identifier", one.getIdentifier().getValue());
                map.put("acks_to", one.getAcksTo().getAddress().getValue());
                map.put("last", one.getLastMessageNumber());
                List<Object> ranges = new ArrayList<>();
                for (AcknowledgementRange range : one.getAcknowledgment().getAcknowledgementRange()) {
                    ranges.add(List.of(range.getLower(), range.getUpper()));
                }
                map.put("received", ranges);
                destinations.add(map);
            }
        }
        return Map.of("source", sources, "destination", destinations);
    }
}
