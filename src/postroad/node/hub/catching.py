"""What a partner answers where that may be a message: cut into its parts as it comes."""

from dataclasses import dataclass

from msgspec import Struct

from postroad.msh.capture import Capture, Incoming
from postroad.node.base.context import Context
from postroad.node.hub.forwarding import Body, Recording
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


class Caught(Struct, frozen=True):
    """An answer, whole and cut into its parts."""

    capture: Capture
    body: Body


class WholeCatch:
    """Takes an answer that may be for others, so that it is kept byte for byte too."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parts = Catch(context)
        self._whole: Recording | None = None
        self._wrong: StoreError | OSError | None = None
        self.content_type = ""

    def reader(self, content_type: str) -> "WholeCatch":
        self.drop()
        self._parts.reader(content_type)
        self.content_type, self._wrong = content_type, None
        return self

    def __call__(self, data: bytes) -> None:
        self._parts(data)
        if not data or self._parts.wrong is not None:
            return
        try:
            if self._whole is None:
                self._whole = Recording(self._context.store.new_sink())
            self._whole.write(data)
        except (StoreError, OSError) as error:
            self._wrong = error

    def close(self) -> Caught:
        """All of it, or what is wrong with it."""
        if self._wrong is not None:
            raise self._wrong
        capture = self._parts.close()
        whole, self._whole = self._whole, None
        if whole is None:
            raise EbmsError("EBMS:0007", "the answer has no body")
        return Caught(capture, whole.finish())

    def drop(self) -> None:
        self._parts.drop()
        if self._whole is not None:
            self._whole.discard()
            self._whole = None
