"""What stands by name in a configuration of Domibus, for others to refer to."""

from postroad.agreement.importing_source import Element, Refusal, Source, line_of
from postroad.wire.xml import elements, local

_REFERENCES = frozenset({"leg", "initiatorParty", "responderParty", "attachment"})
"""Elements whose name is that of another."""


class Parts:
    """The parts of one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        found = source.child(source.root, "businessProcesses")
        if found is None:
            raise Refusal(line_of(source.root), "there are no businessProcesses in it")
        self.business = found
        self._named: dict[tuple[str, str], Element] = {}
        for element in source.root.iter("*"):
            name = element.get("name")
            if name is not None and local(element) not in _REFERENCES:
                self._name(local(element), name.strip(), element)

    def _name(self, kind: str, name: str, element: Element) -> None:
        first = self._named.setdefault((kind, name), element)
        if first is element or kind == "process":
            return
        if sorted(first.attrib.items()) != sorted(element.attrib.items()):
            self.source.note(element, f"there is another {kind} {name!r}; the first one counts")
        self.source.skip(element)

    def get(self, kind: str, name: str | None, place: Element) -> Element:
        """A part by kind and name."""
        found = self._named.get((kind, name or ""))
        if found is None:
            raise Refusal(line_of(place), f"there is no {kind} {name!r}")
        self.source.tick(found, "name")
        return found

    def referred(self, place: Element, attribute: str, kind: str | None = None) -> Element | None:
        """The part that an attribute names; None where it names none."""
        name = self.source.attribute(place, attribute)
        return self.get(kind or attribute, name, place) if name else None

    def value(self, place: Element, attribute: str, kind: str | None = None) -> str | None:
        """The value of the part that an attribute names."""
        found = self.referred(place, attribute, kind)
        return self.source.attribute(found, "value") if found is not None else None

    def tick_groups(self) -> None:
        """A group is told by what is in it."""
        for element in self.source.root.iter("*"):
            if element.get("name") is None and elements(element):
                self.source.tick(element, "name")
