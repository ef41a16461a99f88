"""The rules about legs that speak ebXML, and about addresses, which may be mail only there."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel

from postroad.agreement.awareness import Retry
from postroad.agreement.breach import Breach, warning
from postroad.agreement.ebxml import addresses, is_mail
from postroad.agreement.parameters import Path
from postroad.agreement.places import Rule, numbered, partners, report_of, short_uri
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.pmode_ebxml import Ebxml
from postroad.agreement.retrying import is_reliable
from postroad.agreement.values import is_uri
from postroad.wire.ebms3 import Service
from postroad.wire.ebxml import DIALECTS, Dialect, is_reserved
from postroad.wire.names import EBRM, PUSH

_OTHERS: Final[dict[str, str]] = {
    "protocol.add_actor_or_role_attribute": "remove it; ebxml.relay and ebxml.hops are for the way",
    "protocol.restart": "remove it; an ebXML message is sent again as a whole",
    "business_info.mpc": "remove it; ebXML has no channels",
    "business_info.properties": "remove it; put what it says into a payload",
    "security.wss_version": "remove it; ebXML signs without WS-Security",
    "security.username_token": "remove it; sign instead",
    "security.x509.encryption": "remove it; use https:, or encrypt payloads before submitting them",
    "security.x509.signature.key_reference": "remove it; the signature holds the certificate",
    "security.x509.signature.raw": "remove it; payloads are always digested as they stand",
    "security.send_receipt.reply_pattern": "remove it; ebxml.sync_reply says what is the response",
    "security.send_receipt.non_repudiation": "write ebxml.ack_requested: Signed instead",
    "security.send_receipt.addressing": "remove it; ebxml.relay and ebxml.hops are for the way",
    "error_handling.report.as_response": "remove it; ebxml.sync_reply says what is the response",
    "error_handling.report.receiver_errors": "remove it; ebxml.sync_reply says it",
    "error_handling.report.receiver_errors_to.addressing": "remove it; errors go to an address",
    "payload_service.compression_type": "remove it; compress payloads before submitting them",
    "reception_awareness.in_order": "write ebxml.message_order: Guaranteed instead",
    "reception_awareness.strict_ack": "remove it",
    "reception_awareness.ack_after_delivery": "remove it",
    "reliability": "remove it; ebxml.delivery_semantics says it",
    "bundling": "remove it",
    "splitting": "remove it",
    "addressing": "remove it; ebxml.relay and ebxml.hops are for the way",
}
"""Parameters of ebMS 3.0 that have no place in ebXML messages, and what to do instead."""


def _ebxml(pmode: PMode) -> Iterator[tuple[Path, Leg, Ebxml, Dialect]]:
    for path, leg in numbered(pmode):
        if leg.ebxml is not None:
            yield path, leg, leg.ebxml, DIALECTS[leg.ebxml.version]


def _is_signed(leg: Leg) -> bool:
    x509 = leg.security.x509 if leg.security else None
    return bool(x509 and x509.sign and x509.sign.enabled)


def _is_on(retry: Retry | None) -> bool:
    return retry is None or retry.enabled


def _uris(leg: Leg) -> Iterator[tuple[Path, str]]:
    """All addresses of a leg, with their places."""
    if leg.protocol and leg.protocol.address:
        yield ("protocol", "address"), leg.protocol.address
    receipt = leg.security.send_receipt if leg.security else None
    if receipt and receipt.reply_to:
        yield ("security", "send_receipt", "reply_to"), receipt.reply_to
    errors_to = report_of(leg).receiver_errors_to
    for uri in errors_to.value if errors_to else ():
        yield ("error_handling", "report", "receiver_errors_to"), uri
    if leg.ebxml:
        if leg.ebxml.reply_to:
            yield ("ebxml", "reply_to"), leg.ebxml.reply_to
        for index, uri in enumerate(leg.ebxml.transports):
            yield ("ebxml", "transports", index), uri


def addresses_have_a_transport(pmode: PMode) -> Iterator[Breach]:
    """Messages go over HTTP, those of ebXML over SMTP too."""
    for path, leg in numbered(pmode):
        for place, uri in _uris(leg):
            scheme = urlsplit(uri).scheme.lower()
            if scheme not in ("http", "https", "mailto"):
                hint = f"use https: or http:{' or mailto:' if leg.ebxml else ''}"
                yield Breach((*path, *place), f"no transport for {scheme}:", hint)
            elif scheme == "mailto" and leg.ebxml is None:
                yield Breach(
                    (*path, *place),
                    "only ebXML messages go by mail",
                    "use https:, or add ebxml: with its version",
                )
            elif scheme == "mailto" and "@" not in uri:
                yield Breach((*path, *place), f"{uri!r} names no mailbox", "write mailto:name@host")


def ebxml_is_pushed(pmode: PMode) -> Iterator[Breach]:
    """Each ebXML message is sent by itself: there is no pulling, and an answer is a message."""
    if pmode.binding != PUSH and any(leg.ebxml for leg in pmode.legs):
        yield Breach(
            ("mep_binding",) if pmode.mep_binding else ("mep",),
            f"ebXML messages are pushed, one P-Mode for each, not {short_uri(pmode.binding)}",
            "write mep: oneWay and mep_binding: push",
        )


def ebxml_has_what_the_header_needs(pmode: PMode) -> Iterator[Breach]:
    """CPAId, Service and Action stand in each header; a relay takes what comes.

    Services of MSHs are theirs, whatever the version. [MS098-8.4.4-02]
    """
    for path, leg, ebxml, _ in _ebxml(pmode):
        info = leg.business_info
        if pmode.agreement and pmode.agreement.type:
            yield Breach(("agreement", "type"), "a CPAId has no type", "remove it")
        for key in ("include_pmode", "match_pmode"):
            if pmode.agreement and getattr(pmode.agreement, key) is not None:
                said = "no ebXML message names a P-Mode beside its CPAId"
                yield Breach(("agreement", key), said, "remove it")
        if info and info.service and is_reserved(Service(info.service.value)):
            message = "this service belongs to the MSHs themselves"
            yield Breach((*path, "business_info", "service"), message, "name your own service")
        if ebxml.relay:
            continue
        if not pmode.agreement:
            yield Breach((), "ebXML messages carry a CPAId", "add agreement: with the CPA's id")
        if not (info and info.service):
            place = (*path, "business_info") if info else path
            yield Breach(place, "ebXML messages carry a Service", "add business_info.service")
        if not (info and info.action):
            place = (*path, "business_info") if info else path
            yield Breach(place, "ebXML messages carry an Action", "add business_info.action")


def parties_suit_the_version(pmode: PMode) -> Iterator[Breach]:
    """Roles came with 2.0, and 0.98b has one PartyId for each party."""
    for _, _, _, dialect in _ebxml(pmode):
        for side, partner in partners(pmode):
            if partner.role and not dialect.has_role:
                yield Breach((side, "role"), f"ebXML {dialect.name} has no roles", "remove it")
            if partner.addressing:
                yield Breach((side, "addressing"), "ebXML has no such routing", "remove it")
            if partner.party and len(partner.party) > 1 and not dialect.many_party_ids:
                message = f"ebXML {dialect.name} has one PartyId for each party"
                yield Breach((side, "party", 1), message, "keep one of them")


def names_are_uris(pmode: PMode) -> Iterator[Breach]:
    """Parties, the types of their identifiers and the CPAId are URIs in 0.98b and 1.0.

    Partners of 2.0 are used to numbers with a type; without a type it is an error (`rules`).
    [MS098-8.4.1-05] [MS098-8.4.1-08] [MS098-8.4.2-04]
    """
    if not any(dialect.has_trace for *_, dialect in _ebxml(pmode)):
        return
    names: list[tuple[Path, str, str]] = []
    for side, partner in partners(pmode):
        for index, party in enumerate(partner.party or ()):
            if party.type is not None:
                names.append(((side, "party", index), "PartyId", party.id))
                names.append(((side, "party", index, "type"), "the type of a PartyId", party.type))
    if pmode.agreement:
        names.append((("agreement",), "CPAId", pmode.agreement.value))
    for place, what, value in names:
        if not is_uri(value):
            hint = "write a URI, such as urn:example:name, if your partner can read it"
            yield warning(place, f"{what} should be a URI, not {value!r}", hint)


def other_parameters_stay_out(pmode: PMode) -> Iterator[Breach]:
    """What only ebMS 3.0 knows is refused with ebXML, and SOAP is 1.1."""
    for path, leg, _, _ in _ebxml(pmode):
        if leg.protocol and leg.protocol.soap_version == "1.2":
            place = (*path, "protocol", "soap_version")
            yield Breach(place, "ebXML messages are SOAP 1.1", "write 1.1, or remove it")
        receipt = leg.security.send_receipt if leg.security else None
        if receipt and not receipt.enabled:
            message = "ebxml.ack_requested says whether there are acknowledgments"
            yield Breach((*path, "security", "send_receipt"), message, "remove it")
        for keys, hint in _OTHERS.items():
            names = tuple(keys.split("."))
            if _is_set(leg, names):
                yield Breach((*path, *names), "it has no place in ebXML messages", hint)


def _is_set(group: BaseModel, path: tuple[str, ...]) -> bool:
    for key in path[:-1]:
        group = getattr(group, key)
        if group is None:
            return False
    return path[-1] in group.model_fields_set and getattr(group, path[-1]) is not None


def ebxml_terms_agree(pmode: PMode) -> Iterator[Breach]:
    """Order and the drafts' protocols need reliable delivery. [MS098-10.2.1-03]"""
    for path, leg, ebxml, dialect in _ebxml(pmode):
        place = (*path, "ebxml")
        once = is_reliable(ebxml)
        hint = "write delivery_semantics: OnceAndOnlyOnce"
        if ebxml.message_order == "Guaranteed" and not once:
            yield Breach((*place, "message_order"), "only OnceAndOnlyOnce guarantees order", hint)
        if ebxml.profile == "rm000" and not once:
            message = f"{ebxml.profile} is a protocol for reliable delivery, this is BestEffort"
            yield Breach((*place, "profile"), message, hint)
        if ebxml.profile != "ms098" and not dialect.has_trace:
            message = f"{ebxml.profile} needs TraceHeaders, which ebXML {dialect.name} has not"
            yield Breach((*place, "profile"), message, "write version: 0.98b or 1.0")
        if ebxml.profile == "rm001" and ebxml.transports:
            message = "rm001 suspends the receiver instead of trying another way"
            yield Breach((*place, "transports"), message, "remove it, or use another profile")
        if once and EBRM not in ebxml.methods_supported:
            # [RM000-1.2.9-02]
            message = f"OnceAndOnlyOnce needs {EBRM}, which is not in the list"
            yield Breach(
                (*place, "methods_supported"), message, "add it, or remove methods_supported"
            )
        aware = leg.reception_awareness
        retry = aware.retry if aware else None
        if once and not ebxml.relay and aware and not (aware.enabled and _is_on(retry)):
            yield Breach(
                (*path, "reception_awareness", "retry" if retry else "enabled"),
                "OnceAndOnlyOnce sends again until the acknowledgment comes",
                "write true, or delivery_semantics: BestEffort",
            )
        idle = retry.parameters.model_fields_set if retry and retry.parameters else frozenset()
        for field in sorted(idle - {"time_to_live"}) if not once else ():
            yield warning(
                (*path, "reception_awareness", "retry", "parameters", field),
                "it has no effect: with BestEffort nothing is sent again",
                "write ebxml.delivery_semantics: OnceAndOnlyOnce",
            )


def acknowledgments_suit_the_version(pmode: PMode) -> Iterator[Breach]:
    """Each version has its own receipts, and what is to be signed needs a signature."""
    for path, leg, ebxml, dialect in _ebxml(pmode):
        place = (*path, "ebxml")
        old = dialect.has_quality_of_service
        if ebxml.delivery_receipt != "None" and not old:
            yield Breach(
                (*place, "delivery_receipt"),
                f"ebXML {dialect.name} has no delivery receipts",
                "write ack_requested instead",
            )
        asked = "ack_requested" in ebxml.model_fields_set
        if asked and ebxml.ack_requested == "None" and not old and is_reliable(ebxml):
            yield Breach(
                (*place, "ack_requested"),
                "OnceAndOnlyOnce waits for acknowledgments",
                "write UnSigned or Signed, or remove it",
            )
        for field in ("ack_requested", "delivery_receipt"):
            if getattr(ebxml, field) == "Signed" and not _is_signed(leg) and not ebxml.relay:
                yield Breach(
                    (*place, field),
                    "a signed answer repeats the digests of a signed message, but X509.Sign is "
                    "not true",
                    "add security.x509.sign: true, or write UnSigned",
                )


def acknowledgments_are_signed_like_messages(pmode: PMode) -> Iterator[Breach]:
    """An unsigned acknowledgment is believed where none that is signed was asked for."""
    for path, leg, ebxml, dialect in _ebxml(pmode):
        awaited = is_reliable(ebxml) or ebxml.ack_requested != "None"
        signed = "Signed" in (ebxml.ack_requested, ebxml.delivery_receipt)
        if not awaited or signed or ebxml.relay or dialect.has_trace or not _is_signed(leg):
            continue
        yield warning(
            (*path, "ebxml"),
            "messages are signed, acknowledgments are not: whoever reaches the node and knows the "
            "id of a message can acknowledge it",
            "add ebxml.ack_requested: Signed",
        )


def answers_have_a_way_back(pmode: PMode) -> Iterator[Breach]:
    """2.0 has no address of the sender in the message: the agreement names it."""
    for path, leg, ebxml, dialect in _ebxml(pmode):
        receipt = leg.security.send_receipt if leg.security else None
        named = (receipt and receipt.reply_to) or ebxml.reply_to
        awaited = is_reliable(ebxml) or ebxml.ack_requested != "None"
        if dialect.has_trace or ebxml.relay or named or not awaited or ebxml.sync_reply != "none":
            continue
        yield warning(
            (*path, "ebxml"),
            "acknowledgments have no way back: SendReceipt.ReplyTo is not set",
            "add security.send_receipt.reply_to, or ebxml.sync_reply: mshSignalsOnly",
        )


def the_way_suits_the_relay(pmode: PMode) -> Iterator[Breach]:
    """What is about the way: relays, hops, Via, several transports and mail."""
    for path, leg, ebxml, dialect in _ebxml(pmode):
        place = (*path, "ebxml")
        first = leg.protocol.address if leg.protocol else None
        if ebxml.relay and not first:
            message = "a relay needs the address of the next MSH"
            yield Breach((*place, "relay"), message, "add protocol.address")
        elif ebxml.transports and not first:
            message = "they come after the first address, and there is none"
            yield Breach((*place, "transports"), message, "add protocol.address")
        if ebxml.ack_after_forward and not ebxml.relay:
            yield Breach((*place, "ack_after_forward"), "only a relay forwards", "remove it")
        for field in ("via_cpa_id", "via_service", "via_action"):
            if getattr(ebxml, field) and not dialect.has_trace:
                message = f"ebXML {dialect.name} has no Via"
                yield Breach((*place, field), message, "remove it, or write version: 1.0")
        yield from _service_in_via(place, ebxml)
        mails = [is_mail(address) for address in addresses(leg)]
        if any(mails) and ebxml.sync_reply != "none":
            yield Breach(
                (*place, "sync_reply"),
                "mail has no response that could carry it",
                "write none, or use https: alone",
            )
        if mails and all(mails) and leg.protocol and leg.protocol.security:
            yield Breach(
                (*path, "protocol", "security"),
                "it is for HTTP, and all addresses are mail",
                "remove it; TLS for mail is set in postroad.yaml",
            )


def _service_in_via(place: Path, ebxml: Ebxml) -> Iterator[Breach]:
    """Service and Action stand in a Via together, and with something else. [MS098-8.6.8-02]"""
    if (ebxml.via_service is None) is not (ebxml.via_action is None):
        field = "via_service" if ebxml.via_service else "via_action"
        message = "Service and Action stand in a Via both or not at all"
        yield Breach((*place, field), message, "write via_service and via_action")
    elif ebxml.via_service and not (
        ebxml.via_cpa_id or ebxml.ack_requested != "None" or ebxml.sync_reply != "none"
    ):
        message = "a Via has a CPAId, ackRequested or syncReply besides Service and Action"
        yield Breach((*place, "via_service"), message, "add via_cpa_id or ack_requested")


EBXML_RULES: Final[tuple[Rule, ...]] = (
    addresses_have_a_transport,
    ebxml_is_pushed,
    ebxml_has_what_the_header_needs,
    parties_suit_the_version,
    names_are_uris,
    other_parameters_stay_out,
    ebxml_terms_agree,
    acknowledgments_suit_the_version,
    acknowledgments_are_signed_like_messages,
    answers_have_a_way_back,
    the_way_suits_the_relay,
)
