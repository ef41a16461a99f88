"""Which elements and attachments of a message are signed or encrypted (Core, appendix D.3.6)."""

from typing import Final

from msgspec import Struct

from postroad.wire.names import WSSE

BINARY_SECURITY_TOKEN: Final = f"{{{WSSE}}}BinarySecurityToken"
USERNAME_TOKEN: Final = f"{{{WSSE}}}UsernameToken"


class Coverage(Struct, frozen=True):
    """The elements and attachments that an agreement lists, on top of what AS4 requires.

    AS4 covers eb:Messaging (signature only), the Body and all attachments. With `only`, a list
    that is set replaces the Body or the attachments of AS4 by what it names.
    """

    elements: tuple[str, ...] | None = None
    """Names as `{namespace}local`, or local names, which match in any namespace."""
    attachments: tuple[str, ...] | None = None
    """Content-IDs."""
    only: bool = False

    def names(self, tag: str) -> bool:
        """Whether the list of elements names an element with this tag."""
        return any(matches(name, tag) for name in self.elements or ())

    def covers_body(self, tag: str) -> bool:
        return not self.only or self.elements is None or self.names(tag)

    @property
    def covers_all_attachments(self) -> bool:
        return not self.only or self.attachments is None

    def covers_attachment(self, content_id: str) -> bool:
        return self.covers_all_attachments or content_id in (self.attachments or ())


AS4_COVERAGE: Final = Coverage()


def matches(name: str, tag: str) -> bool:
    """Whether an element name of an agreement stands for a tag."""
    return tag == name or tag.rpartition("}")[2] == name
