package org.postroad.interop.phase4;

import com.helger.phase4.ebms3header.Ebms3PullRequest;
import com.helger.phase4.ebms3header.Ebms3SignalMessage;
import com.helger.phase4.incoming.spi.IAS4IncomingPullRequestProcessorSPI;
import com.helger.phase4.model.pmode.IPMode;

/** Finds the P-Mode of a PullRequest by its MPC. */
public final class PullModes implements IAS4IncomingPullRequestProcessorSPI {
  @Override
  public IPMode findPMode(Ebms3SignalMessage signal) {
    Ebms3PullRequest request = signal.getPullRequest();
    return request == null ? null : Modes.ofChannel(request.getMpc());
  }
}
