"""The walk in for ebXML messages (0.98b, 1.0, 2.0): what is read, believed, held against a CPA.

`Look` of `inspection` takes it where the envelope has an ebXML MessageHeader; steps and result are
the same as for ebMS 3.0.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from postroad.agreement.ebxml import cpa_terms
from postroad.agreement.matching import Match, PModes, Protected, header
from postroad.msh.capture import Capture
from postroad.msh.ebxml_faults import client_fault, unsupported_service
from postroad.msh.ebxml_terms import header_terms, signed_wanted
from postroad.msh.expectation import NOTHING, Facts, Terms
from postroad.msh.lens import Inspection, Lens
from postroad.msh.payloads import Payload
from postroad.msh.securing import signs
from postroad.msh.vouching import Vouching
from postroad.reliability.ebxml_terms import EbxmlError, agree
from postroad.security.algorithms import Algorithms
from postroad.security.ebxml_signature import verify_ebxml
from postroad.wire import xml
from postroad.wire.ebms3 import (
    MIME_TYPE,
    AgreementRef,
    CollaborationInfo,
    MessageInfo,
    Messaging,
    PartInfo,
    Property,
    UserMessage,
)
from postroad.wire.ebxml import (
    HOP_ROLES,
    ROLES,
    Dialect,
    EbxmlMessage,
    ManifestReference,
    Reading,
    Via,
    is_msh_service,
    kind_of,
)
from postroad.wire.ebxml_errors import ebxml_code
from postroad.wire.ebxml_findings import path
from postroad.wire.ebxml_packaging import packaging_problems
from postroad.wire.ebxml_reader import must_understand_problems, read_ebxml
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.mime_headers import content_id_of
from postroad.wire.soap import Envelope, SoapVersion
from postroad.wire.soap_faults import must_understand_fault, read_fault, version_mismatch_fault

ROLE: Final = "role"
SCHEMA: Final = "Schema"
"""A property of a payload: the location of its schema; the type is the schema's version."""
DESCRIPTION: Final = "Description"
"""The part property that is xlink:role on the wire."""
HEADER: Final = "/SOAP-ENV:Envelope/SOAP-ENV:Header/eb:MessageHeader"
MANIFEST: Final = "/SOAP-ENV:Envelope/SOAP-ENV:Body/eb:Manifest"
SIGNATURE: Final = "/SOAP-ENV:Envelope/SOAP-ENV:Header/ds:Signature"
_PLACES: Final = {"wsse:Security": SIGNATURE, "soap:Envelope": "/SOAP-ENV:Envelope"}
_TOMORROW: Final = timedelta(days=1)
_HOP_BY_HOP: Final = frozenset(("TraceHeaderList", "Via", "AckRequested", "SyncReply"))
"""What is said to the next MSH alone: by nature it stands outside of the signature."""


def user_message(
    message: EbxmlMessage, media_types: Mapping[str, str] | None = None
) -> UserMessage:
    """The message as the rest of the house knows it.

    CPAId is the AgreementRef, the Manifest the PartInfos; `media_types` of the MIME parts, by
    Content-ID, become their MimeType.
    """
    header = message.header
    references = message.manifest.references if message.manifest else ()
    return UserMessage(
        MessageInfo(header.timestamp, header.message_id, header.ref_to_message_id),
        header.from_party,
        header.to_party,
        CollaborationInfo(
            header.service,
            header.action,
            header.conversation_id,
            AgreementRef(header.cpa_id) if header.cpa_id else None,
        ),
        tuple(Property(DESCRIPTION, one.text, one.lang) for one in header.descriptions),
        tuple(_part_info(one, media_types or {}) for one in references),
    )


def _part_info(reference: ManifestReference, media_types: Mapping[str, str]) -> PartInfo:
    media_type = media_types.get(content_id_of(reference.href) or "")
    properties = [Property(MIME_TYPE, media_type)] if media_type else []
    if reference.role is not None:
        properties.append(Property(ROLE, reference.role))
    properties += [Property(SCHEMA, one.location, one.version) for one in reference.schemas]
    properties += [Property(DESCRIPTION, one.text, one.lang) for one in reference.descriptions]
    return PartInfo(
        reference.href,
        tuple(properties),
        reference.schemas,
        next(iter(reference.descriptions), None),
    )


class EbxmlLook:
    """One ebXML message under the lens: `read` it, find its terms, then `judge` it by these."""

    def __init__(
        self,
        found: Inspection,
        lens: Lens,
        capture: Capture,
        envelope: Envelope,
        dialect: Dialect,
    ) -> None:
        self._found = found
        self._problems = found.problems
        self._lens = lens
        self._capture = capture
        self._envelope = envelope
        self._dialect = dialect
        self._reading = Reading(None, ())
        self._answering = False

    def read(self) -> None:
        """What the message says of itself; the attachments are known."""
        found = self._found
        found.kind = "ebxml"
        found.fault = read_fault(self._envelope)
        self._packaging()
        self._reading = reading = read_ebxml(self._envelope, self._dialect)
        self._problems += reading.problems
        message = found.ebxml = reading.message
        if self._envelope.version is not SoapVersion.SOAP_11:
            found.soap_fault = version_mismatch_fault(SoapVersion.SOAP_11).fault
        if message is None:
            found.soap_fault = found.soap_fault or client_fault(reading.failures)
            return
        found.kind = f"ebxml_{kind_of(message)}"
        media_types = {name: one.media_type for name, one in found.attachments.items()}
        found.messaging = Messaging((user_message(message, media_types),))
        self._empty(message)
        self._about_itself(message)
        ahead = message.header.timestamp - self._lens.at
        if ahead > _TOMORROW:
            self._future(message)

    def _packaging(self) -> None:
        """What is wrong with the MIME package is SOAP's to answer. [MS098-7.6-01]"""
        capture = self._capture
        self._problems += packaging_problems(
            capture.content_type, capture.root_type, capture.envelope
        )
        wrong = [
            one
            for one in self._problems
            if one.severity is Severity.FAILURE and ebxml_code(one) == "MimeProblem"
        ]
        if wrong:
            self._found.soap_fault = client_fault(wrong)

    def _empty(self, message: EbxmlMessage) -> None:
        """What is said by Service and Action must be in the message."""
        missing = {
            "status_request": (message.asked_about, "the id of the message it asks about"),
            "status_response": (message.status_data, "a status"),
            "error": (message.error_list, "an ErrorList"),
        }
        value, what = missing.get(kind_of(message), (message, ""))
        if not value:
            said = f"a message with Action {message.header.action[:80]} must have {what}"
            self._problems.append(EbmsError("Inconsistent", said, location=f"{HEADER}/eb:Action"))

    def _about_itself(self, message: EbxmlMessage) -> None:
        """A message refers to an earlier one. [MS098-8.4.6.3-01]"""
        about = (message.header.ref_to_message_id, message.acknowledged, message.asked_about)
        if message.message_id and message.message_id in about:
            said = "it refers to itself, and RefToMessageId names an earlier message"
            place = f"{HEADER}/eb:MessageData/eb:RefToMessageId"
            self._problems.append(EbmsError("Inconsistent", said, location=place))

    def _future(self, message: EbxmlMessage) -> None:
        header = message.header
        self._problems.append(
            EbmsError(
                "Inconsistent",
                f"the message says that it was made in the future, at {header.timestamp:%Y-%m-%d}",
                location=f"{HEADER}/eb:MessageData/eb:Timestamp",
                ref=header.message_id,
                severity=Severity.WARNING if self._lens.at_given else Severity.FAILURE,
            )
        )

    def terms(self) -> Terms | None:
        """The terms of the P-Mode, where P-Modes were given.

        CPAId, Service and Action in Via are those of this hop, so at an MSH on the way they go
        before the MessageHeader's [MS098-8.6.7-01] [MS098-8.6.8-01]. No signature covers Via: where
        a message is delivered, its own Service and Action decide, and the CPAId in Via counts only
        if no P-Mode has the MessageHeader's.
        """
        expectation, message = self._lens.expectation, self._found.ebxml
        if expectation is None:
            return None
        if message is None or self._found.messaging is None:
            return Terms(None, frozenset(), None, NOTHING)
        own = self._found.messaging.user_messages[0]
        tried, hop = [own], None
        if message.via is not None and (message.via.cpa_id or message.via.service):
            hop = _for_this_hop(own, message.via)
            tried = [hop, own, _for_this_hop(own, replace(message.via, service=None))]
        if kind_of(message) == "status_request" and self._dialect.has_trace:
            tried += self._at_our_address(own, expectation.pmodes)
        signal = kind_of(message) != "message"
        protected = Protected(bool(self._reading.signatures), False)
        for one in tried:
            terms = expectation.terms(one, protected, ebxml=self._dialect.name, signal=signal)
            if terms.match is None or (one is hop and not _is_relayed(terms.match)):
                continue
            break
        return terms

    def _at_our_address(self, own: UserMessage, pmodes: PModes) -> list[UserMessage]:
        """The same to the parties that its sender has agreements with.

        To of a status request is the ReceiverURI that the message in question went to.
        [MS098-9.1.1-04]
        """
        sender = frozenset(own.from_party.party_ids)
        return [
            replace(own, to_party=header(one.pmode, one.index + 1).to_party)
            for one in pmodes.legs
            if one.dialect == self._dialect.name and one.criteria[1] == sender
        ]

    def renew(self, lens: Lens) -> None:
        """Judge under another lens than it was read with."""
        self._lens = lens

    def judge(self, terms: Terms | None) -> None:
        """Whether what it says is to be believed, and is as it must be."""
        self._answering = terms is not None and terms.answering
        self._strictness()
        self._not_understood()
        self._signature(terms)
        self._uncovered()
        self._payloads()
        self._agreement()

    def _relays(self) -> bool:
        """Whether this is an MSH on the way of the message."""
        match = self._found.match
        return match is not None and match.leg.ebxml is not None and match.leg.ebxml.relay

    def _strictness(self) -> None:
        """What was forgiven is not where the P-Mode is strict."""
        match = self._found.match
        agreed = match.leg.ebxml if match else None
        if agreed is not None and not agreed.lenient and self._reading.problems:
            self._problems += read_ebxml(self._envelope, self._dialect, lenient=False).failures

    def _not_understood(self) -> None:
        """Blocks that must be understood and are not; a service that nobody knows. [MS098-9-02]"""
        message = self._found.ebxml
        blocks = must_understand_problems(
            self._envelope, self._dialect, roles=HOP_ROLES if self._relays() else ROLES
        )
        for block in blocks:
            said = f"the header <{xml.local(block.element)}> must be understood and is not known"
            self._problems.append(EbmsError("NotSupported", said, location=path(block.element)))
        names = [str(block.element.tag) for block in blocks]
        if names:
            fault = must_understand_fault(SoapVersion.SOAP_11, names).fault
            self._found.soap_fault = self._found.soap_fault or fault
        if message is not None and _is_unknown_service(message):
            self._found.soap_fault = self._found.soap_fault or unsupported_service(message)

    def _signature(self, terms: Terms | None) -> None:
        """Verify the first signature, and whether its signer is trusted. [MS098-8.8-04]"""
        message = self._found.ebxml
        if not self._reading.signatures:
            return
        vouching = Vouching(self._found, self._lens, terms)
        references = message.manifest.references if message and message.manifest else ()
        verification = verify_ebxml(
            self._reading.signatures[0],
            self._envelope,
            self._dialect,
            self._found.attachments,
            [one.href for one in references],
            known=vouching.known(),
            algorithms=Algorithms(
                terms.algorithms if terms else frozenset(), legacy=self._lens.legacy
            ),
            unseen=self._unseen,
            limits=self._lens.limits,
        )
        self._found.verification = verification
        self._problems += verification.problems
        vouching.judge(verification)

    def _unseen(self, content_id: str) -> str | None:
        missing = self._capture.envelope_only and content_id not in self._found.attachments
        return "only the envelope was captured" if missing else None

    def _uncovered(self) -> None:
        """In a signed message only what is said to the next MSH alone stands outside.

        The signature of 2.0 leaves out what has the actor of the next MSH: there anybody could add
        an acknowledgment.
        """
        verification = self._found.verification
        for checked in verification.references if verification else ():
            for element in checked.left_out:
                own = xml.namespace(element) == self._dialect.namespace
                if own and xml.local(element) not in _HOP_BY_HOP:
                    said = f"the signature does not cover <{xml.local(element)}>"
                    self._problems.append(
                        EbmsError("SecurityFailure", said, location=path(element))
                    )

    def _payloads(self) -> None:
        """Find what the Manifest lists; nothing may be left over.

        What nobody fetches nobody can be given. [MS098-8.10.7-02] [MS098-8.10.7-04]
        """
        messaging = self._found.messaging
        if messaging is None:
            return
        infos = messaging.user_messages[0].part_infos
        self._found.payloads[0] = tuple(
            self._payload(info, number) for number, info in enumerate(infos, 1)
        )
        listed = {content_id_of(info.href or "") for info in infos}
        for name in self._found.attachments:
            if name not in listed:
                said = "the Manifest does not list this part, so it is not part of the message"
                self._problems.append(EbmsError("MimeProblem", said, location=f"cid:{name}"))

    def _payload(self, info: PartInfo, number: int) -> Payload:
        href = info.href or ""
        content_id = content_id_of(href)
        attachment = self._found.attachments.get(content_id) if content_id else None
        if content_id is not None and attachment is not None:
            return Payload(
                info, content_id, attachment.media_type, attachment.content, attachment.sha256
            )
        # What is not fetched cannot be handed to an application; a carrier need not have it.
        lost = self._lens.receiving and not self._relays()
        said = f"{href[:200]!r} is outside the message and is not fetched"
        if content_id is not None:
            said = f"the message has no part with Content-ID {content_id}"
            lost = not self._capture.envelope_only
        severity = Severity.FAILURE if lost else Severity.WARNING
        place = f"{MANIFEST}/eb:Reference[{number}]/@xlink:href"
        self._problems.append(EbmsError("MimeProblem", said, location=place, severity=severity))
        return Payload(info, content_id, None, None)

    def _agreement(self) -> None:
        """Hold an application's message against its P-Mode, which is its CPA. [MS098-8.4.2-08]"""
        expectation, message, messaging = (
            self._lens.expectation,
            self._found.ebxml,
            self._found.messaging,
        )
        if expectation is None or message is None or messaging is None:
            return
        if kind_of(message) != "message" or _is_unknown_service(message) or self._answering:
            return
        match = self._found.match
        if match is None:
            self._problems.append(self._no_agreement(message, messaging.user_messages[0]))
            return
        self._problems += map(
            _in_its_place, expectation.check(messaging.user_messages[0], self._facts(), match)
        )
        if not self._relays():
            # An MSH on the way has terms of its own, for its hop.
            self._problems += self._conflicts(message, match)

    def _no_agreement(self, message: EbxmlMessage, own: UserMessage) -> EbmsError:
        """Why no P-Mode fits: the CPAId is not known, or the message contradicts its CPA.

        [MS098-8.4.2-09]
        """
        expectation = self._lens.expectation
        assert expectation is not None
        cpa_id = message.header.cpa_id
        known = any(
            one.pmode.agreement is None or one.pmode.agreement.value == cpa_id
            for one in expectation.pmodes.legs
            if one.dialect == self._dialect.name
        )
        if not known:
            said = f"no P-Mode has the CPAId {cpa_id[:200]!r}"
            return EbmsError("ValueNotRecognized", said, location=f"{HEADER}/eb:CPAId")
        try:
            expectation.pmodes.match(own, ebxml=self._dialect.name)
        except EbmsError as error:
            return EbmsError("Inconsistent", error.detail, location=HEADER, ref=error.ref)
        raise AssertionError("a P-Mode that matches was not found")

    def _conflicts(self, message: EbxmlMessage, match: Match) -> Iterator[EbmsError]:
        """Where header and CPA disagree about reliable messaging; what nobody here can do.

        [MS098-8.4.7.1-05]
        """
        agreed = match.leg.ebxml
        assert agreed is not None
        header = message.header
        try:
            self._found.ebxml_terms = agree(
                cpa_terms(match.leg),
                header_terms(message, final=not agreed.relay),
                timestamp=header.timestamp,
            )
        except EbxmlError as conflict:
            error = conflict.error
            yield EbmsError(error.code.value, error.detail, location=HEADER, ref=header.message_id)
        if signed_wanted(message, final=not agreed.relay) and not signs(match.leg):
            said = "it asks for a signed acknowledgment, and the P-Mode signs nothing"
            yield EbmsError("NotSupported", said, location=HEADER, ref=header.message_id)

    def _facts(self) -> Facts:
        found = self._found
        return Facts(
            soap_version=self._envelope.version.number,
            for_next_msh=False,
            request=self._capture.http.start_line if self._capture.http else None,
            payloads=found.payloads.get(0, ()),
            attachments=tuple(found.attachments),
            verification=found.verification,
            judged=found.trusted is not None,
            decryption=None,
            username_tokens=(),
            at=self._lens.at,
            time_counts=self._lens.time_counts,
            receiving=self._lens.receiving,
        )


def _is_relayed(match: Match) -> bool:
    return match.leg.ebxml is not None and match.leg.ebxml.relay


def _for_this_hop(message: UserMessage, via: Via) -> UserMessage:
    """The message as it is to be seen by the next MSH alone."""
    info = message.collaboration_info
    if via.cpa_id:
        info = replace(info, agreement_ref=AgreementRef(via.cpa_id))
    if via.service is not None and via.action is not None:
        info = replace(info, service=via.service, action=via.action)
    return replace(message, collaboration_info=info)


def _is_unknown_service(message: EbxmlMessage) -> bool:
    return kind_of(message) == "message" and is_msh_service(message.header.service)


def _in_its_place(problem: EbmsError) -> EbmsError:
    """What the shared checks say, at the ebXML element that it is about."""
    place = problem.location or ""
    if place.startswith("eb:Messaging"):
        problem.location = MANIFEST if "PayloadInfo" in place else HEADER
    else:
        problem.location = _PLACES.get(place, problem.location)
    return problem
