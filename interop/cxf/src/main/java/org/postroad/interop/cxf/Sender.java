package org.postroad.interop.cxf;

import jakarta.jws.Oneway;
import jakarta.jws.WebMethod;
import jakarta.jws.WebParam;
import jakarta.jws.WebService;
import jakarta.jws.soap.SOAPBinding.ParameterStyle;
import jakarta.xml.soap.SOAPException;
import jakarta.xml.soap.SOAPHeaderElement;
import jakarta.xml.soap.SOAPMessage;
import jakarta.xml.ws.BindingProvider;
import jakarta.xml.ws.Dispatch;
import jakarta.xml.ws.Service;
import jakarta.xml.ws.soap.SOAPBinding;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.xml.namespace.QName;
import org.apache.cxf.Bus;
import org.apache.cxf.BusFactory;
import org.apache.cxf.binding.soap.SoapHeader;
import org.apache.cxf.binding.soap.SoapMessage;
import org.apache.cxf.binding.soap.interceptor.SoapOutInterceptor;
import org.apache.cxf.endpoint.Client;
import org.apache.cxf.feature.Feature;
import org.apache.cxf.frontend.ClientProxy;
import org.apache.cxf.headers.Header;
import org.apache.cxf.interceptor.AttachmentOutInterceptor;
import org.apache.cxf.jaxws.DispatchImpl;
import org.apache.cxf.jaxws.JaxWsProxyFactoryBean;
import org.apache.cxf.message.Attachment;
import org.apache.cxf.message.Message;
import org.apache.cxf.phase.AbstractPhaseInterceptor;
import org.apache.cxf.phase.Phase;
import org.apache.cxf.transport.http.HTTPConduit;
import org.apache.cxf.transports.http.configuration.HTTPClientPolicy;
import org.apache.cxf.ws.rm.RMManager;

/**
 * A client that sends any SOAP message: reliably one-way, or plainly and with its response.
 *
 * <p>Without {@code whole} it is a client as most are, with a service interface, to which headers
 * and attachments are added. CXF sends nothing again that was given to it as a whole SOAPMessage
 * but the content of the Body.
 */
final class Sender {
    private static final QName SERVICE = new QName("urn:postroad:interop", "Sender");
    private static final QName PORT = new QName("urn:postroad:interop", "SenderPort");

    private static final String ATTACHMENTS = Sender.class.getName() + ".attachments";

    private static final String HEADERS = Sender.class.getName() + ".headers";

    private final Bus bus;
    private final Dispatch<SOAPMessage> dispatch;
    private final Orders orders;
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
            orders = options.flag("whole", true) ? null : orders(options);
            client = orders == null
                ? ((DispatchImpl<SOAPMessage>) dispatch).getClient()
                : ClientProxy.getClient(orders);
        } finally {
            BusFactory.setThreadDefaultBus(before);
        }
        client.getOutInterceptors().add(new Additions());
        client.getOutInterceptors().add(new OneOfEach());
        reliability = new Reliability(bus, SERVICE, options);
        if (reliable) {
            for (Feature feature : Reliability.features()) {
                feature.initialize(client, bus);
            }
        }
        ((SOAPBinding) dispatch.getBinding()).setMTOMEnabled(options.flag("mtom", false));
        Options security = options.options("security");
        if (security != null) {
            Security.install(bus, security, Messages.namespace(options));
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
            context.put(ATTACHMENTS, Messages.attachments(options));
            SOAPMessage message = Messages.read(options);
            if (orders != null) {
                Map<String, Object> own = client.getRequestContext();
                own.putAll(context);
                own.put(HEADERS, headers(message));
                orders.order(message.getSOAPBody().getTextContent());
                return Map.of();
            }
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
            map.put("security", Security.verified(dispatch.getResponseContext()));
            return map;
        } finally {
            BusFactory.setThreadDefaultBus(before);
        }
    }

    private Orders orders(Options options) {
        JaxWsProxyFactoryBean factory = new JaxWsProxyFactoryBean();
        factory.setBus(bus);
        factory.setServiceClass(Orders.class);
        factory.setServiceName(SERVICE);
        factory.setAddress(options.text("address"));
        factory.setBindingId(Messages.binding(options));
        return factory.create(Orders.class);
    }

    /** The service of messages whose Body is an order. */
    @WebService(targetNamespace = "urn:postroad:interop")
    @jakarta.jws.soap.SOAPBinding(parameterStyle = ParameterStyle.BARE)
    public interface Orders {
        @Oneway
        @WebMethod
        void order(@WebParam(name = "order", targetNamespace = "urn:example:orders") String content);
    }

    private static List<Header> headers(SOAPMessage message) throws SOAPException {
        List<Header> headers = new ArrayList<>();
        for (Iterator<SOAPHeaderElement> found = message.getSOAPHeader().examineAllHeaderElements();
            found.hasNext();) {
            SOAPHeaderElement one = found.next();
            SoapHeader header = new SoapHeader(one.getElementQName(), one);
            header.setMustUnderstand(one.getMustUnderstand());
            headers.add(header);
        }
        return headers;
    }

    /**
     * Adds headers and attachments before WSS4J signs; attachments of a SOAPMessage would be added
     * after it.
     */
    private static final class Additions extends AbstractPhaseInterceptor<Message> {
        Additions() {
            super(Phase.SETUP);
        }

        @Override
        @SuppressWarnings("unchecked")
        public void handleMessage(Message message) {
            List<Header> headers = (List<Header>) message.getContextualProperty(HEADERS);
            if (headers != null) {
                ((SoapMessage) message).getHeaders().addAll(headers);
            }
            List<Attachment> found = (List<Attachment>) message.getContextualProperty(ATTACHMENTS);
            if (found != null && !found.isEmpty()) {
                message.setAttachments(new ArrayList<>(found));
                message.put(AttachmentOutInterceptor.WRITE_ATTACHMENTS, true);
            }
        }
    }

    /**
     * Leaves one of each header: CXF doubles those that are not its own when it sends again, the
     * first without its attributes.
     */
    private static final class OneOfEach extends AbstractPhaseInterceptor<SoapMessage> {
        OneOfEach() {
            super(Phase.WRITE);
            addBefore(SoapOutInterceptor.class.getName());
        }

        @Override
        public void handleMessage(SoapMessage message) {
            Map<QName, Header> last = new LinkedHashMap<>();
            message.getHeaders().forEach(one -> last.put(one.getName(), one));
            message.getHeaders().retainAll(last.values());
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
