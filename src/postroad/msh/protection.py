"""What protects a message: its Security header opened and verified, and whom that proves.

Steps of the inspection, in their order: headers, decryption, signature, coverage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lxml import etree
from msgspec.structs import replace as replace_fields

from postroad.agreement.coverage import signed_coverage
from postroad.msh.capture import Capture
from postroad.msh.expectation import NOTHING, Terms
from postroad.msh.lens import Inspection, Lens
from postroad.msh.vouching import Vouching
from postroad.security.algorithms import Algorithms
from postroad.security.attachments import Attachment
from postroad.security.coverage import AS4_COVERAGE, Coverage, matches
from postroad.security.decrypt import NOT_ENCRYPTED, Decryption, decrypt, sealed_pieces
from postroad.security.ids import Ids
from postroad.security.timestamps import check_timestamp, read_security_timestamp
from postroad.security.username import read_username_token
from postroad.security.verify import missing_coverage, security_headers, signatures, verify
from postroad.wire import names, xml
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.multihop import ROUTING_INPUT_TAGS
from postroad.wire.soap import Envelope

_SECURITY = f"{{{names.WSSE}}}Security"
_SIGNATURE = f"{{{names.DS}}}Signature"
_USERNAME_TOKEN = f"{{{names.WSSE}}}UsernameToken"
_SECURITY_PIECES = frozenset(
    (
        "Timestamp",
        "BinarySecurityToken",
        "UsernameToken",
        "Signature",
        "SignatureConfirmation",
        "SecurityTokenReference",
        "EncryptedKey",
        "EncryptedData",
        "ReferenceList",
    )
)
_ROUTING = frozenset((f"{{{names.WSA}}}To", f"{{{names.WSA}}}Action", *ROUTING_INPUT_TAGS))
"""The headers of a signal that AS4.NET does not sign. Not those that say where to answer."""
_EBMS_ROLE = "ebms"
_OURS = (None, names.NEXT_MSH, names.S12_NEXT, names.S11_NEXT)
"""Whose Security header we look at: the first of these that there is."""
_MOST_ALIKE = 50
"""How many header blocks are told of where each has the same thing wrong with it."""


def warning(code: str, detail: str, element: etree._Element) -> EbmsError:
    return EbmsError(code, detail, location=xml.path(element), severity=Severity.WARNING)


def _unchecked(uri: str) -> EbmsError:
    return EbmsError("EBMS:0101", f"the signed part {uri} is not here, or not open", location=uri)


def _absent(what: str, location: str) -> EbmsError:
    detail = f"the P-Mode lists the {what} to be signed, and the message has none"
    return EbmsError("EBMS:0103", detail, location=location)


def _already_open(result: Decryption, attachments: Mapping[str, Attachment]) -> Decryption:
    """What was encrypted, where attachments are given in plain; Body and tokens stay closed.

    That nobody has the key, or that the cipher is weak, is no matter then; nonsense still is.
    """
    return replace(
        result,
        decrypted=result.present and not result.body and not result.tokens,
        attachments=attachments,
        problems=tuple(
            one
            for one in result.problems
            if one.severity is Severity.FAILURE and one.code == "EBMS:0102"
        ),
    )


class Protection:
    """The protection of one message, under the lens."""

    def __init__(
        self,
        found: Inspection,
        lens: Lens,
        capture: Capture,
        envelope: Envelope,
        terms: Terms | None,
    ) -> None:
        self._found = found
        self._lens = lens
        self._capture = capture
        self._envelope = envelope
        self._problems = found.problems
        self._headers: Mapping[str | None, etree._Element] = {}
        self._security: etree._Element | None = None
        self._algorithms = Algorithms(
            terms.algorithms if terms else frozenset(), legacy=lens.legacy
        )
        self._raw_attachments = terms.raw_attachments if terms else None
        self._material = terms.material if terms else NOTHING
        self._unsigned_routing = lens.unsigned_routing or (
            terms is not None and terms.unsigned_routing
        )
        self._vouching = Vouching(found, lens, terms)
        self._agreed = (
            signed_coverage(terms.match.leg)
            if terms is not None and terms.match is not None and not terms.answering
            else AS4_COVERAGE
        )
        self._is_test = terms is not None and terms.match is not None and terms.match.test
        self._sealed: frozenset[str] | None = None
        self._bound: list[etree._Element] = []
        """Elements of the Security header that a signature should cover."""

    def headers(self) -> None:
        """The Security header for us, and its timestamp."""
        try:
            self._headers = security_headers(self._envelope.header)
        except EbmsError as error:
            self._problems.append(error)
            return
        self._security = next(
            (self._headers[role] for role in _OURS if role in self._headers), None
        )
        if self._security is not None:
            self._timestamp(self._security)
            self._unknown_pieces(self._security)

    def _username_tokens(self) -> None:
        """The user name tokens, once those that are encrypted are open."""
        tokens = []
        for role, header in self._headers.items():
            if role not in (*_OURS, _EBMS_ROLE):
                continue
            for element in header.iterchildren(_USERNAME_TOKEN):
                try:
                    tokens.append(read_username_token(element))
                except EbmsError as error:
                    self._problems.append(error)
                    break
        self._found.username_tokens = tuple(tokens)

    def _unknown_pieces(self, security: etree._Element) -> None:
        """What is not understood in the Security header protects nothing."""
        for element in xml.elements(security):
            if xml.local(element) not in _SECURITY_PIECES:
                said = f"<{xml.local(element)[:80]}> in the Security header is not known here"
                self._problems.append(warning("EBMS:0103", said, element))
                return

    def _timestamp(self, security: etree._Element) -> None:
        timestamp, problems = read_security_timestamp(security)
        self._problems += problems
        self._found.timestamp = timestamp
        if timestamp is None:
            return
        self._bound.append(timestamp.element)
        for problem in check_timestamp(timestamp, self._lens.at, skew=self._lens.skew):
            if not self._lens.time_counts:
                problem.severity = Severity.WARNING
            self._problems.append(problem)

    def decryption(self) -> None:
        """Open what is encrypted, with the keys at hand, and read the user name tokens."""
        if xml.mentions(self._capture.envelope, b"Encrypted"):
            self._decrypt()
        else:
            self._found.decryption = NOT_ENCRYPTED
        self._username_tokens()

    def _decrypt(self) -> None:
        result = decrypt(
            self._security,
            self._envelope.body,
            self._found.attachments,
            () if self._lens.opened else self._lens.keys + self._material.keys,
            ids=Ids(self._envelope.root),
            algorithms=self._algorithms,
            new_sink=self._lens.new_sink,
            envelope_only=self._capture.envelope_only,
            limits=self._lens.limits,
        )
        if self._lens.opened:
            result = _already_open(result, self._found.attachments)
        self._found.decryption = result
        self._found.attachments = result.attachments
        self._problems += result.problems

    def signature(self) -> None:
        """Verify the signature, and whether its signer is trusted."""
        self._misplaced_signatures()
        present = signatures(self._security) if self._security is not None else []
        if not present:
            return
        if len(present) > 1:
            self._problems.append(
                EbmsError(
                    "EBMS:0103",
                    f"{len(present)} signatures, exactly one is expected; only the first counts",
                    location=xml.path(present[1]),
                )
            )
        verification = verify(
            present[0],
            Ids(self._envelope.root),
            self._found.attachments,
            known=self._vouching.known(),
            algorithms=self._algorithms,
            raw_attachments=self._raw_attachments,
            unseen=self._unseen if self._hides_something() else None,
            sealed=self._sealed_elements(),
            hidden=self._closed_tokens(),
            limits=self._lens.limits,
        )
        self._found.verification = verification
        self._problems += verification.problems
        if self._lens.receiving and not self._failed_to_open():
            self._problems += map(_unchecked, verification.unseen)
        self._vouching.judge(verification)

    def closed(self) -> frozenset[str]:
        """Attachments that are encrypted and stayed so: their digests cannot be known."""
        if self._sealed is None:
            self._sealed = self._closed()
        return self._sealed

    def _failed_to_open(self) -> bool:
        """Whether decryption failed: that error is told alone, and not what follows from it."""
        result = self._found.decryption
        return result is not None and result.failed

    def _hides_something(self) -> bool:
        return bool(self.closed()) or self._capture.envelope_only

    def _closed(self) -> frozenset[str]:
        result = self._found.decryption
        if result is None or result.decrypted or self._lens.opened:
            return frozenset()
        sealed = {
            name
            for name in result.content_ids
            if self._found.attachments[name].content is self._sent(name)
        }
        return frozenset(sealed)

    def _sealed_elements(self) -> list[etree._Element]:
        body = self._envelope.body
        return [body] if body.find(f"{{{names.XENC}}}EncryptedData") is not None else []

    def _unseen(self, content_id: str) -> str | None:
        """Why an attachment cannot be looked at, if it cannot."""
        if content_id in self.closed():
            return "it is encrypted and was not opened"
        if self._capture.envelope_only and content_id not in self._found.attachments:
            return "only the envelope was captured"
        return None

    def _sent(self, content_id: str) -> object:
        return next(
            (p.content for p in self._capture.attachments if p.content_id == content_id), None
        )

    def _misplaced_signatures(self) -> None:
        header = self._envelope.header
        for element in header.iter(_SIGNATURE) if header is not None else ():
            parent = element.getparent()
            if parent is None or parent.tag != _SECURITY or parent.getparent() is not header:
                self._problems.append(
                    EbmsError(
                        "EBMS:0101",
                        "this signature is not a child of a Security header, so it proves nothing",
                        location=xml.path(element),
                    )
                )
                return

    def coverage(self, messaging: etree._Element | None, bound: Sequence[etree._Element]) -> None:
        """What must be signed once anything is: header, Body, attachments, time."""
        verification = self._found.verification
        if verification is None:
            return
        agreed = self._coverage_agreed()
        required = [*self._bound, *bound, *self._listed(agreed)]
        if messaging is not None:
            required.insert(0, messaging)
        body = self._envelope.body
        filled = bool(len(body) or (body.text or "").strip())
        if filled and agreed.covers_body(str(body.tag)):
            required.append(body)
        elif body not in required and not verification.covers(body):
            allowed = "Body, which the P-Mode allows" if filled else "(empty) Body"
            said = f"the signature does not cover the {allowed}"
            self._problems.append(warning("EBMS:0103", said, body))
        pointed = {c.element for c in verification.references if c.element is not None}
        attempted = {c.content_id for c in verification.references}
        unsigned_parts = [name for name in self._found.attachments if name not in attempted]
        self._problems += missing_coverage(
            verification,
            [element for element in dict.fromkeys(required) if element not in pointed],
            [name for name in unsigned_parts if agreed.covers_attachment(name)],
        )
        self._problems += [
            EbmsError(
                "EBMS:0103",
                "the signature does not cover this attachment, which the P-Mode allows",
                location=f"cid:{name}",
                severity=Severity.WARNING,
            )
            for name in unsigned_parts
            if not agreed.covers_attachment(name)
        ]
        routed = [
            block.element
            for block in self._envelope.blocks
            if block.element.tag in ROUTING_INPUT_TAGS
            or str(block.element.tag).startswith(f"{{{names.WSA}}}")
        ]
        unsigned = [one for one in routed[:_MOST_ALIKE] if one not in pointed]
        if self._unsigned_routing and self._is_signal():
            accepted = [one for one in unsigned if one.tag in _ROUTING]
            unsigned = [one for one in unsigned if one.tag not in _ROUTING]
            self._accept_unsigned(accepted)
        self._problems += missing_coverage(verification, unsigned, [])

    def _coverage_agreed(self) -> Coverage:
        """What the P-Mode lists; of a bundle everything is signed, whatever the primary allows."""
        messaging = self._found.messaging
        if messaging is not None and len(messaging.user_messages) > 1:
            return replace_fields(self._agreed, only=False)
        return self._agreed

    def _listed(self, agreed: Coverage) -> list[etree._Element]:
        """The elements that the P-Mode lists to be signed; what is not there is refused too."""
        body, security = self._envelope.body, self._security
        candidates = [block.element for block in self._envelope.blocks]
        candidates += [body, *(xml.elements(security) if security is not None else ())]
        found: list[etree._Element] = []
        for name in agreed.elements or ():
            named = [one for one in candidates if matches(name, str(one.tag))]
            if not named and not self._closed_tokens():
                self._problems.append(_absent(f"element {name}", "wsse:Security"))
            found += named
        for name in () if self._is_test else agreed.attachments or ():
            if name not in self._found.attachments and not self._capture.envelope_only:
                self._problems.append(_absent(f"attachment {name}", f"cid:{name}"))
        return found

    def _closed_tokens(self) -> int:
        """How many pieces of the Security header stayed closed: one may be what is listed."""
        return len(sealed_pieces(self._security)) if self._security is not None else 0

    def _is_signal(self) -> bool:
        messaging = self._found.messaging
        return messaging is not None and not messaging.user_messages

    def _accept_unsigned(self, headers: Sequence[etree._Element]) -> None:
        """Report routing headers that are not signed as warnings only. [P2-2.4.5-02]"""
        self._found.unsigned_routing = tuple(xml.local(one) for one in headers)
        self._problems += [
            warning(
                "EBMS:0103",
                f"the signature does not cover {xml.local(one)}, which is accepted for this signal",
                one,
            )
            for one in headers
        ]
