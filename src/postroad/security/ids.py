"""Finding elements by id, so that an id can never mean two things."""

from typing import Final

from lxml import etree

from postroad.wire.errors import EbmsError
from postroad.wire.names import WSU, XML

_ID_ATTRIBUTES: Final = frozenset((f"{{{WSU}}}Id", "Id", "id", "ID", f"{{{XML}}}id"))


class Ids:
    """All ids of one message over every kind of id attribute (wsu:Id, Id, id, ID, xml:id)."""

    __slots__ = ("_root", "_seen")

    def __init__(self, root: etree._Element) -> None:
        self._root = root
        self._seen: dict[str, list[etree._Element]] | None = None

    @property
    def _found(self) -> dict[str, list[etree._Element]]:
        """Looked for when the first id is asked for: many messages have none to follow."""
        if self._seen is None:
            self._seen = _all_ids(self._root)
        return self._seen

    def count(self, id: str) -> int:
        """How many elements have this id."""
        return len(self._found.get(id, ()))

    def one(self, id: str, *, code: str = "EBMS:0101") -> etree._Element:
        """The element with this id; an error when there is none, or more than one."""
        found = self._found.get(id, ())
        if len(found) == 1:
            return found[0]
        many = "no element has it" if not found else f"{len(found)} elements have it"
        raise EbmsError(
            code, f"the id {id!r} must name exactly one element, but {many}", location=f"#{id}"
        )


def _all_ids(root: etree._Element) -> dict[str, list[etree._Element]]:
    found: dict[str, list[etree._Element]] = {}
    for element in root.iter():
        for name in element.keys():  # noqa: SIM118
            if name in _ID_ATTRIBUTES:
                having = found.setdefault(element.get(name, ""), [])
                if not having or having[-1] is not element:
                    having.append(element)
    return found
