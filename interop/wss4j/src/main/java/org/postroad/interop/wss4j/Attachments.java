package org.postroad.interop.wss4j;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.CallbackHandler;
import javax.security.auth.callback.UnsupportedCallbackException;
import org.apache.wss4j.common.ext.Attachment;
import org.apache.wss4j.common.ext.AttachmentRequestCallback;
import org.apache.wss4j.common.ext.AttachmentResultCallback;

/** Gives WSS4J the attachments of a message, and takes back what it made of them. */
final class Attachments implements CallbackHandler {
    private final Map<String, Attachment> byId = new LinkedHashMap<>();

    Attachments(List<Attachment> attachments) {
        attachments.forEach(one -> byId.put(one.getId(), one));
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback one : callbacks) {
            if (one instanceof AttachmentRequestCallback request) {
                request.setAttachments(requested(request.getAttachmentId()));
            } else if (one instanceof AttachmentResultCallback result) {
                byId.put(result.getAttachmentId(), result.getAttachment());
            } else {
                throw new UnsupportedCallbackException(one);
            }
        }
    }

    private List<Attachment> requested(String id) throws IOException {
        List<Attachment> found = new ArrayList<>();
        for (Attachment one : byId.values()) {
            if ("Attachments".equals(id) || one.getId().equals(id)) {
                one.setSourceStream(new ByteArrayInputStream(one.getSourceStream().readAllBytes()));
                found.add(one);
            }
        }
        return found;
    }

    List<Attachment> all() {
        return List.copyOf(byId.values());
    }
}
