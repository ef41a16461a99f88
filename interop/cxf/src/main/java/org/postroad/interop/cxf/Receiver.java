package org.postroad.interop.cxf;

import jakarta.xml.soap.SOAPMessage;
import jakarta.xml.ws.Provider;
import jakarta.xml.ws.Service;
import jakarta.xml.ws.ServiceMode;
import jakarta.xml.ws.WebServiceProvider;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.xml.namespace.QName;
import org.apache.cxf.Bus;
import org.apache.cxf.BusFactory;
import org.apache.cxf.binding.soap.SoapMessage;
import org.apache.cxf.binding.soap.interceptor.AbstractSoapInterceptor;
import org.apache.cxf.endpoint.Server;
import org.apache.cxf.jaxws.JaxWsServerFactoryBean;
import org.apache.cxf.message.Message;
import org.apache.cxf.phase.Phase;
import org.apache.cxf.phase.PhaseInterceptorChain;
import org.apache.cxf.ws.addressing.AddressingProperties;
import org.apache.cxf.ws.addressing.ContextUtils;
import org.apache.cxf.ws.rm.RM11Constants;
import org.apache.cxf.ws.rm.RMContextUtils;
import org.apache.cxf.ws.rm.RMProperties;

/** An endpoint that takes any SOAP message, one-way, and keeps what reached the application. */
final class Receiver {
    private static final QName MESSAGING =
        new QName("http://docs.oasis-open.org/ebxml-msg/ebms/v3.0/ns/core/200704/", "Messaging");

    private final List<Object> received = Collections.synchronizedList(new ArrayList<>());
    private final Bus bus;
    private final Server server;
    private final Reliability reliability;
    private final String url;

    Receiver(Options options) {
        url = options.text("url");
        bus = BusFactory.newInstance().createBus();
        JaxWsServerFactoryBean factory = new JaxWsServerFactoryBean();
        factory.setBus(bus);
        factory.setServiceBean(new Application(received));
        factory.setAddress(url);
        factory.setBindingId(Messages.binding(options));
        if (options.flag("reliable", false)) {
            factory.getFeatures().addAll(Reliability.features());
        }
        factory.getInInterceptors().add(new OneWay());
        Options security = options.options("security");
        if (security != null) {
            Security.install(bus, security, Messages.namespace(options));
        }
        server = factory.create();
        reliability = new Reliability(bus, server.getEndpoint().getService().getName(), options);
    }

    String url() {
        return url;
    }

    List<Object> received() {
        synchronized (received) {
            return List.copyOf(received);
        }
    }

    Reliability reliability() {
        return reliability;
    }

    void stop() {
        server.destroy();
        bus.shutdown(true);
    }

    /** Understands eb:Messaging, and treats everything but messages of WS-RM itself as one-way. */
    private static final class OneWay extends AbstractSoapInterceptor {
        OneWay() {
            super(Phase.PRE_PROTOCOL);
            addAfter("org.apache.cxf.ws.addressing.soap.MAPCodec");
            addAfter("org.apache.cxf.ws.rm.soap.RMSoapInInterceptor");
            addAfter("org.apache.cxf.ws.security.wss4j.WSS4JInInterceptor");
        }

        @Override
        public Set<QName> getUnderstoodHeaders() {
            return Set.of(MESSAGING);
        }

        @Override
        public void handleMessage(SoapMessage message) {
            AddressingProperties properties = ContextUtils.retrieveMAPs(message, false, false, false);
            boolean addressed = properties != null && properties.getAction() != null;
            String action = addressed ? properties.getAction().getValue() : "";
            if (!action.startsWith(RM11Constants.NAMESPACE_URI)) {
                message.getExchange().setOneWay(true);
            }
        }
    }

    /** The application: it only remembers. */
    @WebServiceProvider(serviceName = "Receiver", targetNamespace = "urn:postroad:interop")
    @ServiceMode(Service.Mode.MESSAGE)
    public static final class Application implements Provider<SOAPMessage> {
        private final List<Object> received;

        Application(List<Object> received) {
            this.received = received;
        }

        @Override
        public SOAPMessage invoke(SOAPMessage request) {
            Message message = PhaseInterceptorChain.getCurrentMessage();
            Map<String, Object> map = new LinkedHashMap<>();
            RMProperties properties = RMContextUtils.retrieveRMProperties(message, false);
            if (properties != null && properties.getSequence() != null) {
                map.put("sequence", properties.getSequence().getIdentifier().getValue());
                map.put("number", properties.getSequence().getMessageNumber());
            }
            map.put("security", Security.verified(message));
            try {
                map.putAll(Messages.write(request));
            } catch (Exception failure) {
                map.put("error", failure.toString());
            }
            received.add(map);
            return null;
        }
    }
}
