package org.postroad.interop.phase4;

import com.helger.http.EHttpMethod;
import com.helger.phase4.crypto.AS4CryptParams;
import com.helger.phase4.crypto.AS4SigningParams;
import com.helger.phase4.incoming.AS4RequestHandler;
import com.helger.phase4.incoming.crypto.AS4IncomingSecurityConfiguration;
import com.helger.phase4.servlet.AS4UnifiedResponse;
import com.helger.phase4.servlet.AS4XServletHandler;
import com.helger.phase4.servlet.IAS4ServletRequestHandlerCustomizer;
import com.helger.web.scope.IRequestWebScopeWithoutResponse;
import com.helger.xservlet.AbstractXServlet;

/** phase4's receiver at `/as4/NAME`, with the keys of the key set of that name. */
public final class Endpoint extends AbstractXServlet {
  public Endpoint() {
    settings().setMultipartEnabled(false);
    AS4XServletHandler handler = new AS4XServletHandler();
    handler.setRequestHandlerCustomizer(
        new IAS4ServletRequestHandlerCustomizer() {
          @Override
          public void customizeBeforeHandling(
              IRequestWebScopeWithoutResponse scope,
              AS4UnifiedResponse response,
              AS4RequestHandler incoming) {
            String path = scope.getRequest().getRequestURI();
            KeySet keys = KeySet.named(path.substring(path.lastIndexOf('/') + 1));
            incoming.setCryptoFactorySign(keys.sign());
            incoming.setCryptoFactoryCrypt(keys.decrypt());
            incoming.setPModeResolver(Outbox.MODES);
            incoming.setIncomingProfileSelector(Outbox.NO_PROFILE);
            incoming.setIncomingSecurityConfiguration(
                new AS4IncomingSecurityConfiguration()
                    .setSigningParams(new AS4SigningParams().setSecurityProvider(keys.provider()))
                    .setCryptParams(new AS4CryptParams()));
          }

          @Override
          public void customizeAfterHandling(
              IRequestWebScopeWithoutResponse scope,
              AS4UnifiedResponse response,
              AS4RequestHandler incoming) {}
        });
    handlerRegistry().registerHandler(EHttpMethod.POST, handler);
  }
}
