package org.postroad.interop.cxf;

import jakarta.xml.soap.SOAPMessage;
import jakarta.xml.ws.BindingProvider;
import jakarta.xml.ws.Dispatch;
import jakarta.xml.ws.Service;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.xml.namespace.QName;
import org.apache.cxf.Bus;
import org.apache.cxf.BusFactory;
import org.apache.cxf.endpoint.Client;
import org.apache.cxf.feature.Feature;
import org.apache.cxf.jaxws.DispatchImpl;
import org.apache.cxf.transport.http.HTTPConduit;
import org.apache.cxf.transports.http.configuration.HTTPClientPolicy;
import org.apache.cxf.ws.rm.RMManager;

/** A client that sends any SOAP message: reliably one-way, or plainly and with its response. */
final class Sender {
    private static final QName SERVICE = new QName("urn:postroad:interop", "Sender");
    private static final QName PORT = new QName("urn:postroad:interop", "SenderPort");

    private final Bus bus;
    private final Dispatch<SOAPMessage> dispatch;
    private final Client client;
    private final Reliability reliability;
    private final boolean reliable;

    Sender(Options options) {
        bus = BusFactory.newInstance().createBus();
        reliable = options.flag("reliable", false);
        Bus before = BusFactory.getAndSetThreadDefaultBus(bus);
        try {
            Service service = Service.create(SERVICE);
            service.addPort(PORT, Messages.binding(options), options.text("address"));
            dispatch = service.createDispatch(PORT, SOAPMessage.class, Service.Mode.MESSAGE);
            client = ((DispatchImpl<SOAPMessage>) dispatch).getClient();
        } finally {
            BusFactory.setThreadDefaultBus(before);
        }
        reliability = new Reliability(bus, SERVICE, options);
        if (reliable) {
            for (Feature feature : Reliability.features()) {
                feature.initialize(client, bus);
            }
        }
        Options security = options.options("security");
        if (security != null) {
            client.getOutInterceptors().add(Security.signing(security, Messages.namespace(options)));
            client.getInInterceptors().add(Security.verifying(security));
        }
        HTTPClientPolicy policy = new HTTPClientPolicy();
        policy.setReceiveTimeout(20_000);
        policy.setAllowChunking(options.flag("chunked", true));
        String decoupled = options.text("decoupled", null);
        if (decoupled != null) {
            policy.setDecoupledEndpoint(decoupled);
        }
        ((HTTPConduit) client.getConduit()).setClient(policy);
    }

    /** Sends a message; with {@code last} its sequence ends with it. */
    Object send(Options options) throws Exception {
        Bus before = BusFactory.getAndSetThreadDefaultBus(bus);
        Map<String, Object> context = dispatch.getRequestContext();
        try {
            if (options.text("action", null) != null) {
                context.put(BindingProvider.SOAPACTION_USE_PROPERTY, true);
                context.put(BindingProvider.SOAPACTION_URI_PROPERTY, options.text("action"));
            }
            context.put(RMManager.WSRM_LAST_MESSAGE_PROPERTY, options.flag("last", false));
            SOAPMessage message = Messages.read(options);
            if (reliable) {
                dispatch.invokeOneWay(message);
                return Map.of();
            }
            SOAPMessage answer = dispatch.invoke(message);
            Map<String, Object> map = new LinkedHashMap<>();
            if (answer != null) {
                map.putAll(Messages.write(answer));
            }
            map.put("status", dispatch.getResponseContext().get("jakarta.xml.ws.http.response.code"));
            map.put("security", dispatch.getResponseContext().get("verified"));
            return map;
        } finally {
            BusFactory.setThreadDefaultBus(before);
        }
    }

    Object close() throws Exception {
        for (String identifier : reliability.sources()) {
            reliability.managed().closeSourceSequence(identifier);
        }
        return Map.of();
    }

    Object terminate() throws Exception {
        for (String identifier : reliability.sources()) {
            reliability.managed().terminateSourceSequence(identifier);
        }
        return Map.of();
    }

    Reliability reliability() {
        return reliability;
    }

    void stop() {
        client.destroy();
        bus.shutdown(true);
    }
}
