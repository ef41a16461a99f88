"""What a P-Mode leg agrees to sign and to encrypt, and the rules for such lists (Core D.3.6)."""

from collections.abc import Iterator
from typing import Final

from postroad.agreement.breach import Breach, warning
from postroad.agreement.parameters import Path
from postroad.agreement.places import Rule, numbered
from postroad.agreement.pmode import Leg, PMode
from postroad.agreement.pmode_security import Covered
from postroad.security.coverage import (
    AS4_COVERAGE,
    BINARY_SECURITY_TOKEN,
    USERNAME_TOKEN,
    Coverage,
    matches,
)
from postroad.wire.names import DS, EB3, S11, S12, WSSE, XENC

_MESSAGING: Final = f"{{{EB3}}}Messaging"
_BODIES: Final = {"1.1": f"{{{S11}}}Body", "1.2": f"{{{S12}}}Body"}
_UNSIGNABLE: Final = (
    *[f"{{{soap}}}{name}" for soap in (S11, S12) for name in ("Envelope", "Header")],
    f"{{{WSSE}}}Security",
    f"{{{DS}}}Signature",
    f"{{{XENC}}}EncryptedKey",
    f"{{{XENC}}}EncryptedData",
)
_WITH_A_TOKEN: Final = (None, "binary_security_token", "pki_path")


def signed_coverage(leg: Leg) -> Coverage:
    """What is signed of the user messages of a leg."""
    x509 = leg.security.x509 if leg.security else None
    return _coverage(x509.sign if x509 else None)


def encrypted_coverage(leg: Leg) -> Coverage:
    """What is encrypted of the user messages of a leg."""
    x509 = leg.security.x509 if leg.security else None
    return _coverage(x509.encryption.encrypt if x509 and x509.encryption else None)


def listed_attachments(leg: Leg) -> tuple[str, ...]:
    """The Content-IDs that a leg lists: every user message of the leg has these attachments."""
    both = (signed_coverage(leg).attachments or (), encrypted_coverage(leg).attachments or ())
    return tuple(dict.fromkeys([*both[0], *both[1]]))


def _coverage(covered: Covered | None) -> Coverage:
    if covered is None or (covered.element is None and covered.attachment is None):
        return AS4_COVERAGE
    return Coverage(covered.element, covered.attachment, bool(covered.only))


def _lists(pmode: PMode) -> Iterator[tuple[Path, Leg, str, Covered]]:
    """The lists of each leg with their paths, and the name of what is done to the listed."""
    for path, leg in numbered(pmode):
        x509 = leg.security.x509 if leg.security else None
        if x509 is None:
            continue
        place: Path = (*path, "security", "x509")
        encrypt = x509.encryption.encrypt if x509.encryption else None
        for verb, at, covered in (
            ("Sign", (*place, "sign"), x509.sign),
            ("Encrypt", (*place, "encryption", "encrypt"), encrypt),
        ):
            if covered is not None and (
                covered.only or covered.element is not None or covered.attachment is not None
            ):
                yield at, leg, verb, covered


def lists_need_their_switch(pmode: PMode) -> Iterator[Breach]:
    """A list says what is signed or encrypted, so something must be."""
    for path, _, verb, covered in _lists(pmode):
        if not covered.enabled:
            yield Breach(
                (*path, "enabled"), f"{verb} is false, and lists what to cover", "remove it"
            )


def listed_elements_can_be_signed(pmode: PMode) -> Iterator[Breach]:
    """A signature covers header blocks, the Body, and tokens and times of the Security header."""
    for path, leg, verb, covered in _lists(pmode):
        if verb != "Sign":
            continue
        signature = leg.security.x509.signature if leg.security and leg.security.x509 else None
        for index, name in enumerate(covered.element or ()):
            at = (*path, "element", index)
            if any(matches(name, one) for one in _UNSIGNABLE):
                yield Breach(at, f"{_short(name)} cannot be signed by itself", "remove it")
            elif name.startswith(f"{{{EB3}}}") and name != _MESSAGING:
                yield Breach(
                    at, f"{_short(name)} is signed with eb:Messaging, not by itself", "remove it"
                )
            elif (
                matches(name, BINARY_SECURITY_TOKEN)
                and signature
                and signature.key_reference not in _WITH_A_TOKEN
            ):
                yield Breach(
                    at,
                    f"with key_reference {signature.key_reference} a message has no such token",
                    "remove it, or write key_reference: binary_security_token",
                )


def listed_elements_can_be_encrypted(pmode: PMode) -> Iterator[Breach]:
    """AS4 leaves eb:Messaging readable; of the envelope, Body and user name token are encrypted."""
    for path, _, verb, covered in _lists(pmode):
        if verb != "Encrypt":
            continue
        for index, name in enumerate(covered.element or ()):
            if any(matches(name, one) for one in (*_BODIES.values(), USERNAME_TOKEN)):
                continue
            yield Breach(
                (*path, "element", index),
                f"{_short(name)} is not encrypted: AS4 forbids it for eb:Messaging, and other "
                "headers have to be readable on the way",
                "remove it; S12:Body and wsse:UsernameToken can be encrypted",
            )


def listed_elements_are_in_the_message(pmode: PMode) -> Iterator[Breach]:
    """What is listed must be in every message of the leg."""
    for path, leg, _, covered in _lists(pmode):
        version = (leg.protocol.soap_version if leg.protocol else None) or "1.2"
        others = [body for number, body in _BODIES.items() if number != version]
        for index, name in enumerate(covered.element or ()):
            at = (*path, "element", index)
            if name in others:
                yield Breach(at, f"the messages are SOAP {version}", "write Body")
            if matches(name, USERNAME_TOKEN) and not (leg.security and leg.security.username_token):
                yield Breach(
                    at, "the messages have no user name token", "add security.username_token"
                )


def only_needs_a_list(pmode: PMode) -> Iterator[Breach]:
    """`only` says that a list is complete; eb:Messaging is signed all the same."""
    for path, _, verb, covered in _lists(pmode):
        at = (*path, "only")
        if not covered.only:
            continue
        if covered.element is None and covered.attachment is None:
            yield Breach(at, "there is no list that it could be about", "add element or attachment")
        elif (
            verb == "Sign"
            and covered.element is not None
            and not any(matches(name, _MESSAGING) for name in covered.element)
        ):
            yield Breach(
                at,
                "eb:Messaging says who sends what to whom: it has to be signed",
                "add eb:Messaging to element",
            )


def narrowed_coverage_gets_a_warning(pmode: PMode) -> Iterator[Breach]:
    """AS4 5.1 signs the Body and all attachments, and encrypts all that is payload."""
    for path, _, verb, covered in _lists(pmode):
        if not covered.only:
            continue
        what = []
        named = covered.element
        if named is not None and not any(
            matches(name, body) for name in named for body in _BODIES.values()
        ):
            what.append("the Body")
        if covered.attachment is not None:
            names = ", ".join(covered.attachment)
            what.append(f"attachments other than {names}" if names else "attachments")
        if what:
            done = "signed" if verb == "Sign" else "encrypted"
            yield warning(
                (*path, "only"),
                f"{' and '.join(what)} need not be {done}, which AS4 requires",
                "remove it if your partner can do without",
            )


def lists_are_for_whole_messages(pmode: PMode) -> Iterator[Breach]:
    """Fragments and bundles hold attachments of which a leg knows no Content-IDs."""
    for path, leg, _, covered in _lists(pmode):
        split = leg.splitting is not None and leg.splitting.enabled
        bundled = leg.bundling is not None and leg.bundling.policy != "never"
        if (covered.attachment is None and not covered.only) or not (split or bundled):
            continue
        at = "attachment" if covered.attachment is not None else "only"
        how = "split" if split else "bundled"
        yield Breach(
            (*path, at),
            f"messages that are {how} are signed and encrypted as a whole",
            f"remove it, or {'splitting' if split else 'bundling'}",
        )


def ebxml_signs_everything(pmode: PMode) -> Iterator[Breach]:
    """The signature of an ebXML message covers the envelope and all payloads."""
    for path, leg, _, _ in _lists(pmode):
        if leg.ebxml is not None:
            yield Breach(path, "ebXML messages are signed as a whole", "write true or false")


def _short(name: str) -> str:
    return name.rpartition("}")[2]


COVERAGE_RULES: Final[tuple[Rule, ...]] = (
    lists_need_their_switch,
    listed_elements_can_be_signed,
    listed_elements_can_be_encrypted,
    listed_elements_are_in_the_message,
    only_needs_a_list,
    narrowed_coverage_gets_a_warning,
    lists_are_for_whole_messages,
    ebxml_signs_everything,
)
