"""Decrypting attachments and Body.

Only EncryptedData that stands in the Security header or directly in the Body is opened, only
attachments of this message are read, and a failure is one uniform error (no padding oracle). Of
the Security header only a wsse:UsernameToken may be encrypted.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final

from cryptography import x509
from lxml import etree
from msgspec.structs import replace

from postroad.security.algorithms import DATA_CIPHERS, PRFS, STRONG, Algorithms, DataCipher
from postroad.security.attachments import CIPHERTEXT_TRANSFORM, CONTENT_ONLY, Attachment
from postroad.security.ciphers import NotDecrypted, Plain, decrypt_content
from postroad.security.coverage import USERNAME_TOKEN
from postroad.security.ids import Ids
from postroad.security.keyestablishment import Unrecoverable, recover_key
from postroad.security.keys import BareKey, KeyPair
from postroad.security.tokens import TokenReference, resolve_token
from postroad.wire.content import BytesContent, BytesSink, NewSink, read_all
from postroad.wire.errors import EbmsError, Severity
from postroad.wire.limits import DEFAULT, Limits
from postroad.wire.mime_headers import content_id_of
from postroad.wire.names import DS, WSSE, XENC
from postroad.wire.xml import elements, escape_attribute, local, octets, parse, path

_ENCRYPTED_KEY: Final = f"{{{XENC}}}EncryptedKey"
_ENCRYPTED_DATA: Final = f"{{{XENC}}}EncryptedData"
_UNIFORM: Final = "the message could not be decrypted"
_MOST_ALIKE: Final = 50


@dataclass(frozen=True, slots=True)
class Decryption:
    """What became of the encrypted parts of a message."""

    present: bool
    decrypted: bool
    """Everything that was encrypted is open now."""
    algorithms: tuple[str, ...]
    recipients: tuple[x509.Certificate, ...]
    """For whom, as far as the message tells."""
    forms: tuple[TokenReference, ...]
    """How the message names the recipients' certificates."""
    content_ids: tuple[str, ...]
    """The attachments that were encrypted."""
    body: bool
    """Whether the Body was encrypted."""
    tokens: int
    """How many pieces of the Security header were encrypted; once open, user name tokens."""
    attachments: Mapping[str, Attachment]
    """All attachments, the encrypted ones in plain where they could be opened."""
    problems: tuple[EbmsError, ...]

    @property
    def failed(self) -> bool:
        """Whether something that should be open could not be decrypted."""
        return any(
            one.code == "EBMS:0102" and one.severity is Severity.FAILURE for one in self.problems
        )


NOT_ENCRYPTED: Final = Decryption(False, False, (), (), (), (), False, 0, {}, ())
"""Of a message in which nothing is encrypted: its attachments are as they came."""


def decrypt(
    security: etree._Element | None,
    body: etree._Element,
    attachments: Mapping[str, Attachment],
    keys: Sequence[KeyPair | BareKey],
    *,
    ids: Ids,
    algorithms: Algorithms = STRONG,
    new_sink: NewSink = BytesSink,
    envelope_only: bool = False,
    limits: Limits = DEFAULT,
) -> Decryption:
    """Open what is encrypted. Elements are replaced in their tree: find ids anew afterwards.

    With `envelope_only` the attachments were not captured: that they cannot be opened is no fault.
    """
    in_body = [child for child in body if child.tag == _ENCRYPTED_DATA]
    in_header = [] if security is None else sealed_pieces(security)
    sealed = in_body
    if security is not None:
        sealed = [child for child in security if child.tag == _ENCRYPTED_DATA] + in_body
    opener = _Opener(
        security, keys, ids, algorithms, new_sink, limits, dict(attachments), envelope_only
    )
    if len(sealed) > limits.references:
        opener.problems.append(_failed(body, "too many encrypted parts"))
        sealed = []
    opened = sum(opener.open(data) for data in sealed)
    stray = _stray(security, body, set(sealed), opener.keys_used)
    opener.problems += stray
    return Decryption(
        present=bool(sealed or stray or opener.problems),
        decrypted=bool(sealed) and opened == len(sealed) and not stray,
        algorithms=tuple(opener.used),
        recipients=tuple(opener.recipients),
        forms=tuple(opener.forms),
        content_ids=tuple(opener.content_ids),
        body=bool(in_body),
        tokens=len(in_header),
        attachments=opener.attachments,
        problems=tuple(opener.problems),
    )


def sealed_pieces(security: etree._Element) -> list[etree._Element]:
    """The pieces of the Security header that are encrypted in their place, not attachments."""
    return [
        data
        for data in security
        if data.tag == _ENCRYPTED_DATA and data.find(f".//{{{XENC}}}CipherReference") is None
    ]


def _stray(
    security: etree._Element | None,
    body: etree._Element,
    seen: set[etree._Element],
    used: set[etree._Element],
) -> list[EbmsError]:
    """Encrypted things in places that are not looked at, and keys that open nothing."""
    root = body.getparent()
    assert root is not None
    astray = (data for data in root.iter(_ENCRYPTED_DATA) if data not in seen)
    unused = (
        key
        for key in (security if security is not None else ())
        if key.tag == _ENCRYPTED_KEY and key not in used
    )
    return [
        *(
            _failed(data, "EncryptedData is not expected here and was not opened")
            for data in islice(astray, _MOST_ALIKE)
        ),
        *(
            _failed(key, "this EncryptedKey is not used by any EncryptedData")
            for key in islice(unused, _MOST_ALIKE)
        ),
    ]


class _Opener:
    """Opens the encrypted parts of one message, remembering keys and what went wrong."""

    def __init__(
        self,
        security: etree._Element | None,
        keys: Sequence[KeyPair | BareKey],
        ids: Ids,
        algorithms: Algorithms,
        new_sink: NewSink,
        limits: Limits,
        attachments: dict[str, Attachment],
        envelope_only: bool,
    ) -> None:
        self._envelope_only = envelope_only
        self._security = security
        self._keys = keys
        self._ids = ids
        self._algorithms = algorithms
        self._new_sink = new_sink
        self._limits = limits
        self._content_keys: dict[tuple[etree._Element, int], bytes | EbmsError | Unrecoverable] = {}
        self._listed: dict[str, set[etree._Element]] | None = None
        self._told: set[str] = set()
        self.keys_used: set[etree._Element] = set()
        self.attachments = attachments
        self.problems: list[EbmsError] = []
        self.used: dict[str, None] = {}
        self.recipients: dict[x509.Certificate, None] = {}
        self.forms: dict[TokenReference, None] = {}
        self.content_ids: list[str] = []

    def open(self, data: etree._Element) -> bool:
        """Open one EncryptedData; False, with a problem noted, when it stays closed."""
        try:
            holder = _child(_child(data, "CipherData"), None)
            reference = holder.tag == f"{{{XENC}}}CipherReference"
            encrypted_key = self._key_of(data)
            self.keys_used.add(encrypted_key)
            content_id = self._referenced(data, holder) if reference else ""
            cipher = self._cipher(data)
            key = self._content_key(encrypted_key, cipher)
            if reference:
                self._open_attachment(data, cipher, key, content_id)
            else:
                self._open_element(data, cipher, key, holder)
        except (NotDecrypted, Unrecoverable):
            self.problems.append(_failed(data, _UNIFORM))
            return False
        except EbmsError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                self.problems.append(error)
            return False
        return True

    def _cipher(self, data: etree._Element) -> DataCipher:
        uri = _child(data, "EncryptionMethod").get("Algorithm", "")
        self._note(uri, data)
        cipher = DATA_CIPHERS.get(uri)
        if cipher is None:
            raise _failed(data, f"encryption by {uri!r} is not supported")
        return cipher

    def _note(self, uri: str, element: etree._Element) -> None:
        self.used.setdefault(uri)
        reason = self._algorithms.refuse(uri)
        if reason:
            raise EbmsError("EBMS:0103", reason, location=path(element))

    def _key_of(self, data: etree._Element) -> etree._Element:
        """The EncryptedKey that an EncryptedData names, or that lists it."""
        infos = [child for child in elements(data) if child.tag == f"{{{DS}}}KeyInfo"]
        if infos:
            inner = _child(infos[0], None)
            if inner.tag == _ENCRYPTED_KEY:
                return inner
            if inner.tag == f"{{{WSSE}}}SecurityTokenReference":
                uri = _child(inner, None).get("URI", "")
                key = self._ids.one(uri.removeprefix("#"), code="EBMS:0102")
                if key.tag == _ENCRYPTED_KEY and key.getparent() is self._security:
                    return key
            raise _failed(infos[0], "it names no EncryptedKey of the Security header")
        if self._listed is None:
            self._listed = self._lists()
        keys = self._listed.get("#" + data.get("Id", ""), set())
        if len(keys) != 1:
            raise _failed(data, f"{len(keys)} keys are for it, exactly one is expected")
        return next(iter(keys))

    def _lists(self) -> dict[str, set[etree._Element]]:
        """The EncryptedKeys of the Security header by what their reference lists name."""
        found: dict[str, set[etree._Element]] = {}
        for key in self._security if self._security is not None else ():
            if key.tag == _ENCRYPTED_KEY:
                for reference in key.iter(f"{{{XENC}}}DataReference"):
                    found.setdefault(reference.get("URI", ""), set()).add(key)
        return found

    def _content_key(self, encrypted_key: etree._Element, cipher: DataCipher) -> bytes:
        """The key, recovered once: a second EncryptedData gets the same key or the same error."""
        known = self._content_keys.get((encrypted_key, cipher.key_bytes))
        if known is None:
            try:
                known = self._recovered(encrypted_key, cipher)
            except (EbmsError, Unrecoverable) as error:
                known = error
            self._content_keys[encrypted_key, cipher.key_bytes] = known
        if isinstance(known, bytes):
            return known
        raise known

    def _recovered(self, encrypted_key: etree._Element, cipher: DataCipher) -> bytes:
        if len(self.keys_used) > self._limits.encrypted_keys:
            raise _failed(encrypted_key, f"more than {self._limits.encrypted_keys} EncryptedKeys")
        method = _child(encrypted_key, "EncryptionMethod")
        self._note(method.get("Algorithm", ""), method)
        for element in encrypted_key.iter(etree.Element):
            if "Algorithm" in element.attrib:
                uri = element.get("Algorithm", "")
                self.used.setdefault(uri)
                if uri in PRFS:  # HKDF names its digest only as that of an HMAC
                    self.used.setdefault(PRFS[uri].uri)
        info = _child(encrypted_key, "KeyInfo", DS)
        first = _child(info, None)
        agreement = first if first.tag == f"{{{XENC}}}AgreementMethod" else None
        if agreement is not None:
            info = _child(agreement, "RecipientKeyInfo")
        keys = self._recipient(info)
        value = octets(_child(_child(encrypted_key, "CipherData"), "CipherValue"), "EBMS:0102")
        for key in keys:
            with suppress(Unrecoverable):
                return recover_key(method, agreement, value, key.private_key, cipher.key_bytes)
        raise Unrecoverable

    def _recipient(self, info: etree._Element) -> list[KeyPair | BareKey]:
        """The keys that may open it: the pair of the named certificate, or keys without one."""
        pairs = [key for key in self._keys if isinstance(key, KeyPair)]
        bare: list[KeyPair | BareKey] = [key for key in self._keys if isinstance(key, BareKey)]
        try:
            named = resolve_token(info, self._ids.one, [pair.certificate for pair in pairs])
        except EbmsError as error:
            if bare:
                return bare
            if not self._keys:
                raise _sealed(info, "it is encrypted, and no key to open it was given") from None
            raise _failed(info, f"none of the given keys fits: {error.detail}") from None
        self.recipients.setdefault(named.certificate)
        if named.form is not None:
            self.forms.setdefault(named.form)
        public = named.certificate.public_key()
        fitting: list[KeyPair | BareKey] = [
            pair for pair in pairs if _same_key(pair.certificate, named.certificate)
        ]
        fitting += (key for key in bare if key.private_key.public_key() == public)
        if fitting:
            return fitting
        subject = named.certificate.subject.rfc4514_string()
        raise _sealed(info, f"it is encrypted for {subject}, whose key was not given", self._keys)

    def _referenced(self, data: etree._Element, reference: etree._Element) -> str:
        """The attachment that a CipherReference names: one of this message, nothing else."""
        content_id: str | None = content_id_of(reference.get("URI", ""))
        if content_id is not None and content_id not in self.attachments and self._envelope_only:
            raise _sealed(reference, f"cid:{content_id} is encrypted and was not captured")
        if content_id is None or content_id not in self.attachments:
            raise _failed(reference, f"{reference.get('URI')!r} is no attachment of this message")
        if content_id in self.content_ids:
            raise _failed(reference, "the attachment is encrypted more than once")
        transforms = [t.get("Algorithm") for t in reference.iter(f"{{{DS}}}Transform")]
        if transforms != [CIPHERTEXT_TRANSFORM]:
            raise _failed(reference, f"the transforms {transforms} are not accepted")
        if data.get("Type") != CONTENT_ONLY:
            raise _failed(data, f"an attachment encrypted as {data.get('Type')!r} is not supported")
        self.content_ids.append(content_id)
        return content_id

    def _open_attachment(
        self, data: etree._Element, cipher: DataCipher, key: bytes, content_id: str
    ) -> None:
        attachment = self.attachments[content_id]
        plain = decrypt_content(cipher, key, attachment.content, self._new_sink)
        media_type = data.get("MimeType", attachment.media_type)
        self.attachments[content_id] = replace(
            attachment,
            content=plain.content,
            media_type=media_type.partition(";")[0].strip().lower(),
            sha256=plain.sha256,
        )

    def _open_element(
        self, data: etree._Element, cipher: DataCipher, key: bytes, value: etree._Element
    ) -> None:
        """Put the decrypted content in the place of the EncryptedData."""
        parent = data.getparent()
        if parent is None or (parent is not self._security and local(parent) != "Body"):
            raise _failed(data, "only the Body's content can be encrypted in place")
        sealed = BytesContent(octets(value, "EBMS:0102"))
        plain: Plain = decrypt_content(cipher, key, sealed, BytesSink)
        plaintext = read_all(plain.content, self._limits.envelope_bytes)
        inside = _parsed(parent, plaintext, self._limits)
        if parent is self._security and [child.tag for child in inside] != [USERNAME_TOKEN]:
            raise NotDecrypted
        _replace(data, parent, inside)


def _parsed(parent: etree._Element, plaintext: bytes, limits: Limits) -> etree._Element:
    """The decrypted content in an element that declares the namespaces of its place."""
    declared = "".join(
        f' xmlns{":" + prefix if prefix else ""}="{escape_attribute(uri)}"'
        for prefix, uri in parent.nsmap.items()
        if prefix != "xml"
    )
    try:
        return parse(b"<c" + declared.encode() + b">" + plaintext + b"</c>", limits)
    except EbmsError:
        raise NotDecrypted from None


def _replace(data: etree._Element, parent: etree._Element, inside: etree._Element) -> None:
    _append_text(data, inside.text)
    for node in list(inside):
        data.addprevious(node)
    tail = data.tail
    data.tail = None
    previous = data.getprevious()
    parent.remove(data)
    if tail:
        if previous is None:
            parent.text = (parent.text or "") + tail
        else:
            previous.tail = (previous.tail or "") + tail


def _append_text(before: etree._Element, value: str | None) -> None:
    if not value:
        return
    previous, parent = before.getprevious(), before.getparent()
    if previous is not None:
        previous.tail = (previous.tail or "") + value
    elif parent is not None:
        parent.text = (parent.text or "") + value


def _same_key(one: x509.Certificate, other: x509.Certificate) -> bool:
    return one == other or one.public_key() == other.public_key()


def _child(parent: etree._Element, name: str | None, namespace: str = XENC) -> etree._Element:
    """The one child of that name, or the only child where no name is given."""
    found = [
        child for child in elements(parent) if name is None or child.tag == f"{{{namespace}}}{name}"
    ]
    if len(found) != 1:
        raise _failed(parent, f"exactly one {name or 'child'} is expected, found {len(found)}")
    return found[0]


def _sealed(
    element: etree._Element, detail: str, keys: Sequence[KeyPair | BareKey] = ()
) -> EbmsError:
    """Encrypted for somebody else: a failure only for one who has keys and expects to read it."""
    severity = Severity.FAILURE if keys else Severity.WARNING
    return EbmsError("EBMS:0102", detail, location=path(element), severity=severity)


def _failed(element: etree._Element, detail: str) -> EbmsError:
    return EbmsError("EBMS:0102", detail, location=path(element))
