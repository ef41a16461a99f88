"""Everything there is to know about one captured message: what it is, who signed it, what is wrong.

The walk in, taken to its end whatever is found on the way: each step notes its problems and the
next step goes on with what there is. `postroad inspect` and a node that receives take the same
walk; only the lens is stricter for the node.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from enum import Enum, auto
from itertools import islice

from cryptography import x509
from lxml import etree
from msgspec.structs import replace

from postroad.agreement.matching import Protected
from postroad.msh.bundle_rules import received_bundle_problems
from postroad.msh.capture import Capture, read_capture
from postroad.msh.ebxml_inbound import EbxmlLook
from postroad.msh.expectation import Expectation, Facts, Terms, check_secondary
from postroad.msh.fragment_structure import has_fragment_header, structure_problems
from postroad.msh.lens import Inspection, Lens
from postroad.msh.payloads import (
    Opening,
    Payload,
    misplaced_parts,
    open_payloads,
    root_type_problems,
    unlisted,
)
from postroad.msh.protection import Protection, warning
from postroad.security.attachments import Attachment
from postroad.security.decrypt import NOT_ENCRYPTED
from postroad.security.revocation import Revocation
from postroad.security.tokens import carried_certificates
from postroad.wire import names, xml
from postroad.wire.ebms3 import Messaging, SignalMessage, Unit, UserMessage
from postroad.wire.ebms3_reader import MESSAGING, find_messaging, read_messaging
from postroad.wire.ebxml import Dialect
from postroad.wire.ebxml_reader import dialect_of
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.fragments import (
    MESSAGE_FRAGMENT,
    find_message_fragment,
    read_message_fragment,
)
from postroad.wire.multihop import ROUTING_INPUT_TAGS, find_routing_input, read_routing_input
from postroad.wire.soap import (
    Envelope,
    SoapVersion,
    not_understood,
    read_envelope,
)
from postroad.wire.soap_faults import read_fault, version_mismatch_fault
from postroad.wire.wsa import read_addressing
from postroad.wire.wsreliability import read_wsr_headers
from postroad.wire.wsrm_faults import read_rm_fault
from postroad.wire.wsrm_reader import read_rm_headers

_SECURITY = f"{{{names.WSSE}}}Security"
_TOKEN = f"{{{names.WSSE}}}BinarySecurityToken"
_CERTIFICATE = f"{{{names.DS}}}X509Certificate"
_MOST_TOKENS = 16
_EVERY_DAY = frozenset((MESSAGING, _SECURITY))
"""The header blocks of a message that goes no special ways."""
_EBMS_ROLE = "ebms"
_OURS = (None, names.NEXT_MSH, names.S12_NEXT, names.S11_NEXT)
"""The roles of an MSH, none being that of the ultimate receiver."""
_ROLES = frozenset((names.S12_ULTIMATE_RECEIVER, names.NEXT_MSH, _EBMS_ROLE))
_TOMORROW = timedelta(days=1)
_MOST_ALIKE = 50
"""How many header blocks are told of where each has the same thing wrong with it."""
_MOST_PROBLEMS = 1000
_OTHER_PROTOCOLS: Mapping[str, str] = {
    names.WSRM: "wsrm",
    names.WSRM10: "wsrm",
    names.WSMC: "wsrm",
    names.WSR: "wsreliability",
    names.WST: "wstrust",
}


def inspect_message(chunks: Iterable[bytes], lens: Lens) -> Inspection:
    """Look at one captured message. Whatever is in it, the answer is an `Inspection`."""
    try:
        capture = read_capture(chunks, new_sink=lens.new_sink, limits=lens.limits)
    except EbmsError as error:
        return Inspection(problems=[error])
    look = Look(capture, lens)
    if look.read():
        look.judge(look.terms())
    return look.found


def _told_once(problems: Iterable[EbmsError]) -> list[EbmsError]:
    """Each problem once, and not more than anybody reads."""
    told = list({(str(problem), problem.ref): problem for problem in problems}.values())
    rest = told[_MOST_PROBLEMS:]
    if not rest:
        return told
    worst = next((p for p in rest if p.severity is Severity.FAILURE), rest[0])
    more = EbmsError(
        worst.code,
        f"there are {len(rest)} further problems, not listed",
        location=worst.location,
        severity=worst.severity,
    )
    return [*told[:_MOST_PROBLEMS], more]


class Kind(Enum):
    """What a message is, so who takes it."""

    MESSAGE = auto()
    """It has user messages, or cannot be told apart: who takes it says what is wrong."""
    SIGNALS = auto()
    EBXML = auto()
    SEQUENCES = auto()
    """About sequences of WS-ReliableMessaging, without eb:Messaging."""
    RELIABILITY = auto()
    """Of WS-Reliability, without eb:Messaging."""


class Look:
    """One message under the lens: `read` it, find its terms, then `judge` it by these."""

    def __init__(self, capture: Capture, lens: Lens, root: etree._Element | None = None) -> None:
        """`root` is the envelope, where somebody parsed it in this thread already."""
        self.found = self._found = Inspection(capture=capture)
        self._root = root
        self._lens = lens
        self._capture = capture
        self._problems = self._found.problems
        self._messaging_element: etree._Element | None = None
        self._ebxml: EbxmlLook | None = None
        self._closed: frozenset[str] = frozenset()
        """Attachments that are encrypted and stayed so."""
        self._bound: list[etree._Element] = []
        """Header elements that a signature should cover beside eb:Messaging and Body."""

    def read(self) -> bool:
        """What the message says of itself; False when it cannot be read."""
        self._problems += self._capture.problems
        root = self._root
        try:
            if root is None:
                root = xml.parse(self._capture.envelope, self._lens.limits)
            self._envelope = self._found.envelope = read_envelope(root)
        except EbmsError as error:
            self._problems.append(error)
            if root is not None and _is_of_another_soap(root):
                self._found.soap_fault = version_mismatch_fault(SoapVersion.SOAP_11).fault
            return False
        dialect = self._dialect()
        if dialect is None:
            self._packaging()
        self._attachments()
        self._look_alikes()
        if dialect is None:
            self._messaging()
        else:
            self._ebxml = EbxmlLook(self._found, self._lens, self._capture, self._envelope, dialect)
            self._ebxml.read()
        return True

    def _dialect(self) -> Dialect | None:
        """Which ebXML it is, if any: what has eb:Messaging is none."""
        header = self._envelope.header
        newer = header is not None and header.find(MESSAGING) is not None
        return None if newer else dialect_of(self._envelope)

    @property
    def has_user_message(self) -> bool:
        """Whether it is a message of ebMS 3.0 with a user message in it, once it was read."""
        messaging = self._found.messaging
        return self._ebxml is None and messaging is not None and bool(messaging.user_messages)

    @property
    def kind(self) -> Kind:
        """What it is, once it was read; what cannot be read is a message."""
        if self._ebxml is not None:
            return Kind.EBXML
        envelope, messaging = self._found.envelope, self._found.messaging
        if messaging is not None:
            return Kind.MESSAGE if messaging.user_messages else Kind.SIGNALS
        if envelope is None or self._messaging_element is not None:
            return Kind.MESSAGE
        protocol = _protocol(envelope)
        if protocol == "wsrm" or read_rm_fault(envelope) is not None:
            return Kind.SEQUENCES
        return Kind.RELIABILITY if protocol == "wsreliability" else Kind.MESSAGE

    def terms(self) -> Terms | None:
        """The terms of the message's P-Mode, where P-Modes were given."""
        if self._ebxml is not None:
            return self._ebxml.terms()
        expectation, messaging = self._lens.expectation, self._found.messaging
        if expectation is None:
            return None
        message = next(iter(messaging.user_messages), None) if messaging else None
        envelope = self._capture.envelope
        protected = Protected(
            xml.mentions(envelope, b"Signature"), xml.mentions(envelope, b"Encrypted")
        )
        return expectation.terms(message, protected)

    def certificates(self) -> tuple[x509.Certificate, ...]:
        """The certificates that it carries, once it was read; nobody vouches for them yet."""
        header = self._envelope.header
        found = [] if header is None else header.iter(_TOKEN, _CERTIFICATE)
        return carried_certificates(islice(found, _MOST_TOKENS))

    def renew(self, revocation: Revocation) -> None:
        """Judge by what was learned about revoked certificates since it was read."""
        self._lens = replace(self._lens, revocation=revocation)
        if self._ebxml is not None:
            self._ebxml.renew(self._lens)

    def judge(self, terms: Terms | None) -> None:
        """Whether what it says is to be believed, and is as it must be."""
        if terms is not None:
            self._found.pmode, self._found.match = terms.pmode, terms.match
        if self._ebxml is not None:
            self._ebxml.judge(terms)
        else:
            self._judge(terms)
        if self._problems:
            self._problems[:] = _told_once(self._problems)

    def _judge(self, terms: Terms | None) -> None:
        if self._is_bare():
            self._found.decryption = NOT_ENCRYPTED
            self._other_headers()
        else:
            protection = Protection(self._found, self._lens, self._capture, self._envelope, terms)
            protection.headers()
            protection.decryption()
            protection.signature()
            self._other_headers()
            protection.coverage(self._messaging_element, self._bound)
            self._closed = protection.closed()
        self._payloads()
        self._kind()
        self._receipts()
        self._agreement()

    def _is_bare(self) -> bool:
        """Whether nothing at all protects it: then there is nothing to check or to open."""
        envelope = self._capture.envelope
        return not (
            any(block.element.tag == _SECURITY for block in self._envelope.blocks)
            or xml.mentions(envelope, b"Signature")
            or xml.mentions(envelope, b"Encrypted")
        )

    def _packaging(self) -> None:
        """Media type and charset of the envelope."""
        root_type, version = self._capture.root_type, self._envelope.version
        if root_type is not None:
            self._problems += root_type_problems(
                root_type.media_type,
                version.media_type,
                root_type.get("charset"),
                self._envelope.root.getroottree().docinfo.encoding,
                "MIME part 1" if self._capture.multipart else "HTTP",
            )

    def _attachments(self) -> None:
        """The attachments, by Content-ID."""
        attachments: dict[str, Attachment] = {}
        for part in self._capture.attachments:
            name = part.content_id
            if name is None and has_fragment_header(self._envelope):
                continue
            if name is None:
                self._problems.append(
                    EbmsError(
                        "EBMS:0007",
                        "this part has no Content-ID, so it is not part of the message",
                        location=part.location,
                    )
                )
                continue
            attachments.setdefault(
                name, Attachment(name, part.content, part.content_type.media_type, part.sha256)
            )
        self._found.attachments = attachments

    def _messaging(self) -> None:
        """Read eb:Messaging: the very element that the signature covers, if there is one."""
        try:
            element = find_messaging(self._envelope)
        except EbmsError as error:
            self._problems.append(error)
            header = self._envelope.header
            element = header.find(MESSAGING) if header is not None else None
        if element is None:
            return
        self._messaging_element = element
        reading = read_messaging(element, self._envelope.version, self._lens.limits)
        self._found.messaging = reading.messaging
        self._problems += reading.problems
        if reading.messaging is None:
            return
        self._addressee(reading.messaging, element)
        latest = self._lens.at + _TOMORROW
        for unit in reading.messaging.units:
            if unit.message_info.timestamp > latest:
                self._future(unit, element)

    def _addressee(self, messaging: Messaging, element: etree._Element) -> None:
        """A header block for somebody else is not ours to process (SOAP 1.2, 2.4)."""
        if messaging.role in _OURS or messaging.role == names.S12_ULTIMATE_RECEIVER:
            return
        said = f"eb:Messaging is for {messaging.role!r}, which is not the part of an MSH"
        severity = Severity.FAILURE if self._lens.receiving else Severity.WARNING
        self._problems.append(
            EbmsError("EBMS:0009", said, location=xml.path(element), severity=severity)
        )

    def _future(self, unit: Unit, element: etree._Element) -> None:
        """No unit is made tomorrow; where somebody chose the time, it may be before the message."""
        info = unit.message_info
        self._problems.append(
            EbmsError(
                "EBMS:0003",
                f"the message says that it was made in the future, at {info.timestamp:%Y-%m-%d}",
                location=f"{xml.path(element)}/…/eb:Timestamp",
                ref=info.message_id,
                severity=Severity.WARNING if self._lens.at_given else Severity.FAILURE,
            )
        )

    def _look_alikes(self) -> None:
        """A second Body or Envelope somewhere is how a signed one is moved aside."""
        namespace = self._envelope.version.namespace
        rightful = {
            "Envelope": self._envelope.root,
            "Header": self._envelope.header,
            "Body": self._envelope.body,
        }
        for name, one in rightful.items():
            for element in self._envelope.root.iter(f"{{{namespace}}}{name}"):
                if element is not one:
                    self._problems.append(
                        EbmsError(
                            "EBMS:0009",
                            f"a second SOAP {name} inside the message",
                            location=xml.path(element),
                        )
                    )
                    break

    def _other_headers(self) -> None:
        """WS-Addressing, routing input, fragments; and what must be understood and is not."""
        if not len(self._envelope.body) and all(
            block.element.tag in _EVERY_DAY for block in self._envelope.blocks
        ):
            return
        self._found.fault = read_fault(self._envelope)
        self._found.addressing, problems = read_addressing(self._envelope)
        self._problems += problems
        self._routing()
        self._fragment()
        self._reliability()
        self._problems += (
            EbmsError(
                "EBMS:0008",
                f"the header <{xml.local(block.element)}> must be understood and is not known here",
                location=xml.path(block.element),
            )
            for block in not_understood(self._envelope, self._understood(), _ROLES)[:_MOST_ALIKE]
        )

    def _understood(self) -> frozenset[str]:
        """What is known here; who acts on a message speaks fewer protocols than who looks at it."""
        spoken = (names.WSRM, names.WSRM10, names.WSR) if self._lens.receiving else _OTHER_PROTOCOLS
        known = {MESSAGING, _SECURITY, MESSAGE_FRAGMENT, *ROUTING_INPUT_TAGS}
        for block in self._envelope.blocks:
            namespace = xml.namespace(block.element)
            if namespace == names.WSA or namespace in spoken:
                known.add(str(block.element.tag))
        return frozenset(known)

    def _reliability(self) -> None:
        """What a protocol of reliable messaging says is worth its signature. [P2-2.4.5-02]"""
        self._bound += (
            block.element
            for block in self._envelope.blocks
            if xml.namespace(block.element) in (names.WSRM, names.WSR)
        )
        self._found.rm, problems = read_rm_headers(self._envelope)
        self._found.rm_fault = read_rm_fault(self._envelope)
        self._problems += problems
        self._found.wsr, broken = read_wsr_headers(self._envelope)
        self._found.wsr_broken = tuple(broken)
        if not self._lens.receiving:
            self._problems += [one.problem for one in broken]

    def _routing(self) -> None:
        try:
            block = find_routing_input(self._envelope)
        except EbmsError as error:
            self._problems.append(error)
            return
        if block is not None:
            self._found.routing, problems = read_routing_input(block)
            self._problems += problems

    def _fragment(self) -> None:
        self._bound += (
            block.element
            for block in self._envelope.blocks
            if block.element.tag == MESSAGE_FRAGMENT
        )
        try:
            block = find_message_fragment(self._envelope)
        except EbmsError as error:
            self._problems.append(error)
            return
        if block is not None:
            self._found.fragment, problems = read_message_fragment(block)
            self._problems += problems

    def _payloads(self) -> None:
        """Find and open the payloads of each user message; nothing may be left over."""
        messaging = self._found.messaging
        listed: list[str | None] = []
        closed = self._closed
        messages = 0
        bundled = messaging is not None and len(messaging.user_messages) > 1
        opening = Opening(self._envelope.body, self._found.attachments, self._lens.limits)
        path, envelope_only = self._unit_path(), self._capture.envelope_only
        for place, unit in enumerate(messaging.units if messaging else ()):
            if not isinstance(unit, UserMessage):
                continue
            messages += 1
            self._found.payloads[place], problems = open_payloads(
                unit,
                f"{path}[{messages}]" if bundled else path,
                self._found.attachments,
                self._envelope.body,
                limits=self._lens.limits,
                opening=opening,
                closed=closed,
                envelope_only=envelope_only,
            )
            self._problems += problems
            listed += [part.href for part in unit.part_infos]
            for problem in problems if bundled else ():
                problem.ref = unit.message_info.message_id
        if messaging is None:
            return
        if has_fragment_header(self._envelope):
            self._fragment_structure(messaging)
        else:
            self._problems += unlisted(list(self._found.attachments), listed)
        if bundled:
            self._problems += misplaced_parts(messaging.user_messages)

    def _fragment_structure(self, messaging: Messaging) -> None:
        """Check Body and parts of a fragment; a node does so together with the fragment's group."""
        fragment = self._found.fragment
        if fragment is not None and not self._lens.receiving:
            self._problems += structure_problems(
                fragment.href,
                self._capture.attachments,
                self._envelope.body,
                messaging,
                envelope_only=self._capture.envelope_only,
            )

    def _unit_path(self) -> str:
        prefix = self._envelope.version.prefix
        return f"{prefix}:Envelope/{prefix}:Header/eb:Messaging/eb:UserMessage"

    def _kind(self) -> None:
        messaging = self._found.messaging
        if messaging is not None:
            self._found.kind = "fragment" if self._found.fragment else _kind(messaging.primary)
            return
        if self._found.fault is not None:
            self._found.kind = "fault"
            return
        self._found.kind = _protocol(self._envelope) or "soap"
        if self._found.kind == "soap" and self._messaging_element is None:
            self._problems.append(
                EbmsError(
                    "EBMS:0009",
                    "there is no eb:Messaging header: this is not an ebMS message",
                    location=f"{self._envelope.version.prefix}:Envelope",
                )
            )

    def _agreement(self) -> None:
        """Hold the message against the P-Modes, where some were given."""
        expectation, messaging = self._lens.expectation, self._found.messaging
        if expectation is None or messaging is None:
            return
        primary = messaging.primary
        for place, unit in enumerate(messaging.units):
            if isinstance(unit, UserMessage):
                self._unit_agreement(expectation, place, unit, secondary=unit is not primary)
            elif unit.receipt is not None and not self._lens.receiving:
                self._problems += expectation.check_receipt(unit)
        if len(self._found.matches) > 1:
            size = len(self._capture.envelope)
            size += sum(part.content.size for part in self._capture.attachments)
            self._problems += received_bundle_problems(messaging.units, self._found.matches, size)

    def _unit_agreement(
        self, expectation: Expectation, place: int, unit: UserMessage, *, secondary: bool
    ) -> None:
        payloads = self._found.payloads.get(place, ())
        match = self._found.match if not secondary else None
        try:
            match = self._found.matches[place] = match or expectation.pmodes.match(unit)
        except EbmsError as error:
            self._problems.append(error)
            return
        if secondary:
            self._problems += check_secondary(unit, payloads, match)
        else:
            self._problems += expectation.check(unit, self._facts(payloads), match)

    def _receipts(self) -> None:
        """Proof of receipt is worth its signature."""
        messaging = self._found.messaging
        if messaging is None or self._messaging_element is None or self._found.verification:
            return
        if any(unit.receipt and unit.receipt.non_repudiation for unit in messaging.signals):
            self._problems.append(
                warning(
                    "EBMS:0103",
                    "a receipt with non-repudiation information proves nothing without a signature",
                    self._messaging_element,
                )
            )

    def _facts(self, payloads: tuple[Payload, ...]) -> Facts:
        found, messaging = self._found, self._found.messaging
        aimed = messaging is not None and messaging.role == names.NEXT_MSH
        return Facts(
            soap_version=self._envelope.version.number,
            for_next_msh=aimed if found.routing is None or aimed else None,
            request=self._capture.http.start_line if self._capture.http else None,
            payloads=payloads,
            attachments=tuple(found.attachments),
            verification=found.verification,
            judged=found.trusted is not None,
            decryption=found.decryption,
            username_tokens=found.username_tokens,
            at=self._lens.at,
            time_counts=self._lens.time_counts,
            receiving=self._lens.receiving,
            fragment=found.fragment is not None,
            joined=self._lens.joined,
            body=self._filled_body(),
            bundled=messaging is not None and len(messaging.user_messages) > 1,
            test=found.match is not None and found.match.test,
        )

    def _filled_body(self) -> str | None:
        """The tag of the Body, if it has content, encrypted or not."""
        body = self._envelope.body
        return str(body.tag) if len(body) or (body.text or "").strip() else None


def _is_of_another_soap(root: etree._Element) -> bool:
    return xml.local(root) == "Envelope" and xml.namespace(root) not in (names.S11, names.S12)


def _kind(unit: Unit) -> str:
    if isinstance(unit, UserMessage):
        return "user_message"
    return signal_kind(unit)


def signal_kind(signal: SignalMessage) -> str:
    if signal.pull_request is not None:
        return "pull_request"
    if signal.receipt is not None:
        return "receipt"
    return "error" if signal.errors else "signal"


def _protocol(envelope: Envelope) -> str | None:
    """Which other protocol that ebMS leans on the message belongs to, if any."""
    blocks = [block.element for block in envelope.blocks]
    for element in [*xml.elements(envelope.body), *blocks]:
        namespace = xml.namespace(element)
        if namespace in _OTHER_PROTOCOLS:
            return _OTHER_PROTOCOLS[namespace]
    return None
