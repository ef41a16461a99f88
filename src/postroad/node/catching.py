"""What a partner answers where that may be a message: cut into its parts as it comes."""

from dataclasses import dataclass

from postroad.msh.capture import Capture, Incoming
from postroad.node.context import Context
from postroad.store.interface import StoreError
from postroad.wire.errors import EbmsError


@dataclass(slots=True)
class Catch:
    """Takes the body of an answer as it comes."""

    context: Context
    size: int = 0
    incoming: Incoming | None = None
    wrong: EbmsError | StoreError | OSError | None = None

    def reader(self, content_type: str) -> "Catch":
        self.size, self.wrong = 0, None
        self._abort()
        try:
            store, limits = self.context.store, self.context.limits
            self.incoming = Incoming(content_type, new_sink=store.new_sink, limits=limits)
        except EbmsError as error:
            self.wrong = error
        return self

    def __call__(self, data: bytes) -> None:
        self.size += len(data)
        if self.incoming is None:
            return
        try:
            self.incoming.feed(data)
        except (EbmsError, StoreError, OSError) as error:
            self.wrong = error
            self._abort()

    def _abort(self) -> None:
        if self.incoming is not None:
            self.incoming.abort()
            self.incoming = None

    def close(self) -> Capture:
        """All of it, or what is wrong with it."""
        if self.wrong is not None or self.incoming is None:
            raise self.wrong or EbmsError("EBMS:0007", "the answer has no body")
        incoming, self.incoming = self.incoming, None
        return incoming.close()

    def drop(self) -> None:
        self._abort()
