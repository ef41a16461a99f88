"""What is encrypted opens for its recipient, here and by hand; what was touched stays closed."""

import base64
import hashlib
import hmac
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.keywrap import aes_key_unwrap
from cryptography.hazmat.primitives.serialization import load_der_public_key
from lxml import etree

from postroad.security import algorithms as alg
from postroad.security.algorithms import DATA_CIPHERS, STRONG, Algorithms
from postroad.security.attachments import COMPLETE, CONTENT_ONLY, Attachment
from postroad.security.ciphers import NotDecrypted, Sealed, decrypt_content, iv_bytes
from postroad.security.decrypt import Decryption, decrypt
from postroad.security.ids import Ids
from postroad.security.keyestablishment import Encryption
from postroad.security.keys import KeyPair
from postroad.security.secure import Secured, secure
from postroad.security.sign import Signing
from postroad.security.tokens import TokenReference
from postroad.security.verify import security_headers, signatures, verify
from postroad.store.spool import SpoolSink
from postroad.wire.content import CHUNK, BytesContent, BytesSink, Content, NewSink, read_all
from postroad.wire.errors import Severity
from postroad.wire.limits import MIB, Limits
from postroad.wire.names import DS, DSIG11, DSIG_MORE_2001, DSIG_MORE_2021, WSSE, XENC, XENC11
from postroad.wire.soap import Envelope, SoapVersion, read_envelope
from postroad.wire.xml import parse
from tests import pki
from tests.changing import replace

CA: Final = pki.authority("Recipients")
ATTACHMENTS: Final = (
    Attachment("one@a", BytesContent(b"<order/>"), "application/xml"),
    Attachment("two@a", BytesContent(bytes(range(256)) * 5), "image/png"),
    Attachment("empty@a", BytesContent(b""), "text/plain"),
)
BODY: Final = 'before <d:doc xmlns:d="urn:d" n="1">copper &amp; zinc<d:e></d:e></d:doc> after'
GCM: Final = [uri for uri, cipher in DATA_CIPHERS.items() if cipher.mode == "GCM"]
CBC: Final = [uri for uri, cipher in DATA_CIPHERS.items() if cipher.mode != "GCM"]
WRAPS: Final = list(alg.KEY_WRAPS)
BRAINPOOL: Final = {"brainpool384": ec.BrainpoolP384R1(), "brainpool512": ec.BrainpoolP512R1()}
AGREEING: Final = [
    *((alg.ECDH_ES, kind) for kind in ("p256", "p384", "p521", "brainpool", *BRAINPOOL)),
    (alg.X25519, "x25519"),
    (alg.X448, "x448"),
]
SHAKY: Final = Algorithms(legacy=True)
CLOSED: Final = "the message could not be decrypted"


@cache
def recipient(kind: str = "rsa", name: str = "recipient") -> KeyPair:
    if kind not in BRAINPOOL:
        return pki.issue(CA, f"{name} {kind}", key=kind)
    key = ec.derive_private_key(987654321, BRAINPOOL[kind])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(pki.distinguished_name(kind))
        .issuer_name(CA.certificate.subject)
        .public_key(key.public_key())
        .serial_number(len(kind) + BRAINPOOL[kind].key_size)
        .not_valid_before(pki.NOW - pki.YEAR)
        .not_valid_after(pki.NOW + pki.YEAR)
        .sign(CA.private_key, hashes.SHA256())
    )
    return KeyPair(key, certificate, (CA.certificate,))


class Dice:
    """Entropy that is the same every time, and remembers what it gave."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def __call__(self, size: int) -> bytes:
        seed = f"dice {len(self.given)}".encode()
        self.given.append(hashlib.shake_256(seed).digest(size))
        return self.given[-1]


def sealed(
    encryption: Encryption,
    *,
    attachments: Sequence[Attachment] = ATTACHMENTS,
    body: str = BODY,
    signing: Signing | None = None,
    entropy: Callable[[int], bytes] | None = None,
    version: SoapVersion = SoapVersion.SOAP_12,
) -> Secured:
    return secure(
        version,
        [],
        attachments,
        signing=signing,
        encryption=encryption,
        entropy=entropy or Dice(),
        body_content=body,
    )


def to_rsa(**options: str) -> Encryption:
    return Encryption(recipient().certificate, **options)  # type: ignore[arg-type]


def to_x25519(**options: str) -> Encryption:
    options.setdefault("key", alg.X25519)
    return Encryption(recipient("x25519").certificate, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Opened:
    envelope: Envelope
    decryption: Decryption

    @property
    def plain(self) -> dict[str, tuple[str, bytes]]:
        return {
            name: (one.media_type, read_all(one.content, MIB))
            for name, one in self.decryption.attachments.items()
        }

    @property
    def details(self) -> list[str]:
        return [problem.detail for problem in self.decryption.problems]

    @property
    def codes(self) -> set[str]:
        return {problem.code for problem in self.decryption.problems}


def opened(
    message: Secured | bytes,
    keys: Sequence[KeyPair],
    *,
    attachments: Sequence[Attachment] | None = None,
    algorithms: Algorithms = STRONG,
    new_sink: NewSink = BytesSink,
    limits: Limits | None = None,
) -> Opened:
    sent = message.envelope if isinstance(message, Secured) else message
    if attachments is None:
        attachments = message.attachments if isinstance(message, Secured) else ()
    envelope = read_envelope(parse(sent))
    decryption = decrypt(
        security_headers(envelope.header)[None],
        envelope.body,
        {one.content_id: one for one in attachments},
        keys,
        ids=Ids(envelope.root),
        algorithms=algorithms,
        new_sink=new_sink,
        limits=limits or Limits(),
    )
    return Opened(envelope, decryption)


def assert_open(result: Opened, attachments: Sequence[Attachment] = ATTACHMENTS) -> None:
    assert result.details == []
    assert result.decryption.decrypted is True
    assert result.plain == {
        one.content_id: (one.media_type, one.content.data) for one in attachments
    }
    for one in result.decryption.attachments.values():
        assert one.sha256 == hashlib.sha256(read_all(one.content, MIB)).digest()
    inner = etree.tostring(result.envelope.body, method="c14n", exclusive=True).decode()
    assert f">{BODY}</" in inner


def _named(value: object) -> str:
    return str(value).rpartition("#")[2] if "#" in str(value) else str(value)


@pytest.mark.parametrize("mgf", alg.MGFS, ids=_named)
@pytest.mark.parametrize("digest", [alg.SHA1, alg.SHA256, alg.SHA384, alg.SHA512], ids=_named)
@pytest.mark.parametrize("data", GCM, ids=_named)
def test_rsa_oaep_opens_with_every_digest_and_mask(data: str, digest: str, mgf: str) -> None:
    sent = sealed(to_rsa(data=data, digest=digest, mgf=mgf))
    result = opened(sent, [recipient()])
    assert_open(result)
    assert {data, alg.RSA_OAEP, digest, mgf} == set(result.decryption.algorithms)


@pytest.mark.parametrize("digest", [alg.SHA1, alg.SHA256, alg.SHA384, alg.SHA512], ids=_named)
@pytest.mark.parametrize("data", GCM, ids=_named)
def test_rsa_oaep_with_the_fixed_mask_opens(data: str, digest: str) -> None:
    sent = sealed(to_rsa(key=alg.RSA_OAEP_MGF1P, data=data, digest=digest))
    assert b"xenc11:MGF" not in sent.envelope
    assert_open(opened(sent, [recipient()]))


@pytest.mark.parametrize("data", GCM, ids=_named)
@pytest.mark.parametrize("wrap", WRAPS, ids=_named)
@pytest.mark.parametrize("derivation", [alg.CONCAT_KDF, alg.HKDF], ids=_named)
@pytest.mark.parametrize(("key", "kind"), AGREEING, ids=_named)
def test_key_agreement_opens(key: str, kind: str, derivation: str, wrap: str, data: str) -> None:
    pair = recipient(kind)
    sent = sealed(
        Encryption(pair.certificate, data=data, key=key, derivation=derivation, wrap=wrap)
    )
    result = opened(sent, [pair])
    assert_open(result)
    assert {data, key, derivation, wrap} <= set(result.decryption.algorithms)


@pytest.mark.parametrize("derivation", [alg.CONCAT_KDF, alg.HKDF], ids=_named)
@pytest.mark.parametrize("digest", [alg.SHA256, alg.SHA384, alg.SHA512], ids=_named)
def test_key_derivation_takes_every_digest(digest: str, derivation: str) -> None:
    sent = sealed(to_x25519(digest=digest, derivation=derivation))
    assert_open(opened(sent, [recipient("x25519")]))


@pytest.mark.parametrize("version", SoapVersion, ids=lambda version: version.name)
@pytest.mark.parametrize("form", TokenReference)
def test_the_recipient_is_named_in_every_form(form: TokenReference, version: SoapVersion) -> None:
    sent = sealed(replace(to_rsa(), reference=form), version=version)
    result = opened(sent, [recipient("x25519"), recipient()])
    assert_open(result)
    assert result.decryption.recipients == (recipient().certificate,)
    assert result.decryption.forms == (form,)
    assert result.decryption.content_ids == ("one@a", "two@a", "empty@a")
    assert result.decryption.body is True


@pytest.mark.parametrize("data", CBC, ids=_named)
def test_cbc_opens_only_where_it_is_allowed(data: str) -> None:
    sent = sealed(to_rsa(data=data))
    assert_open(opened(sent, [recipient()], algorithms=SHAKY))
    named = Algorithms(named=frozenset([data]))
    assert_open(opened(sent, [recipient()], algorithms=named))
    refused = opened(sent, [recipient()])
    assert refused.decryption.decrypted is False
    assert "EBMS:0103" in refused.codes
    assert refused.plain["one@a"][1] == read_all(sent.attachments[0].content, MIB)


def test_rsa_1_5_opens_only_where_it_is_allowed() -> None:
    sent = sealed(to_rsa(key=alg.RSA_1_5))
    assert_open(opened(sent, [recipient()], algorithms=SHAKY))
    refused = opened(sent, [recipient()])
    assert refused.decryption.decrypted is False
    assert refused.codes == {"EBMS:0103"}


@pytest.mark.parametrize("encryption", [to_rsa(), to_x25519()], ids=["RSA", "X25519"])
def test_signed_and_then_encrypted_verifies_after_opening(encryption: Encryption) -> None:
    signer = pki.issue(CA, "signer")
    sent = sealed(encryption, signing=Signing(signer, alg.ECDSA_SHA256))
    result = opened(sent, [recipient(), recipient("x25519")])
    assert_open(result)
    [signature] = signatures(security_headers(result.envelope.header)[None])
    verification = verify(signature, Ids(result.envelope.root), result.decryption.attachments)
    assert verification.problems == ()
    assert verification.valid is True
    assert verification.covers(result.envelope.body)
    assert all(verification.covers_attachment(one.content_id) for one in ATTACHMENTS)


def test_a_message_without_content_is_not_encrypted() -> None:
    sent = sealed(to_rsa(), attachments=(), body="")
    assert b"EncryptedKey" not in sent.envelope
    plain = sealed(to_rsa(), attachments=(), body="", signing=Signing(CA, alg.ECDSA_SHA256))
    result = opened(plain, [recipient()])
    assert result.decryption.present is False
    assert result.decryption.decrypted is False
    assert result.details == []


def test_a_body_alone_is_encrypted() -> None:
    sent = sealed(to_rsa(), attachments=())
    assert b"copper" not in sent.envelope
    assert_open(opened(sent, [recipient()]), ())


def _find(root: etree._Element, *names: str) -> etree._Element:
    found = root
    for name in names:
        found = next(one for one in found.iter("*") if etree.QName(one).localname == name)
    return found


def _octets(root: etree._Element, *names: str) -> bytes:
    return base64.b64decode(_find(root, *names).text or "")


def _hkdf_sha256(secret: bytes, salt: bytes, size: int) -> bytes:
    """RFC 5869 in four lines; one block is enough for what is asked here."""
    assert size <= 32
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, b"\x01", "sha256")[:size]


def _assert_plain(key: bytes, sent: Secured) -> None:
    for original, encrypted in zip(ATTACHMENTS, sent.attachments, strict=True):
        blob = read_all(encrypted.content, MIB)
        assert encrypted.media_type == "application/octet-stream"
        assert len(blob) == 12 + original.content.size + 16
        assert AESGCM(key).decrypt(blob[:12], blob[12:], None) == original.content.data
    root = parse(sent.envelope)
    blob = _octets(root, "Body", "CipherValue")
    assert AESGCM(key).decrypt(blob[:12], blob[12:], None).decode() == BODY


def test_rsa_oaep_opens_by_hand() -> None:
    sent = sealed(to_rsa(digest=alg.SHA384, mgf=XENC11 + "mgf1sha512", data=alg.AES256_GCM))
    private = recipient().private_key
    assert isinstance(private, rsa.RSAPrivateKey)
    key = private.decrypt(
        _octets(parse(sent.envelope), "EncryptedKey", "CipherValue"),
        padding.OAEP(padding.MGF1(hashes.SHA512()), hashes.SHA384(), None),
    )
    assert len(key) == 32
    _assert_plain(key, sent)


def test_x25519_with_hkdf_opens_by_hand() -> None:
    sent = sealed(to_x25519())
    root, private = parse(sent.envelope), recipient("x25519").private_key
    assert isinstance(private, x25519.X25519PrivateKey)
    public = load_der_public_key(_octets(root, "OriginatorKeyInfo", "DEREncodedKeyValue"))
    assert isinstance(public, x25519.X25519PublicKey)
    assert _find(root, "PRF").get("Algorithm") == DSIG_MORE_2001 + "hmac-sha256"
    assert _find(root, "KeyLength").text == "16"
    wrapping = _hkdf_sha256(private.exchange(public), _octets(root, "Salt"), 16)
    wrapped = _octets(root, "EncryptedKey", "CipherValue")
    _assert_plain(aes_key_unwrap(wrapping, wrapped), sent)


def test_ecdh_with_concat_kdf_opens_by_hand() -> None:
    pair = recipient("p256")
    sent = sealed(
        Encryption(
            pair.certificate,
            key=alg.ECDH_ES,
            derivation=alg.CONCAT_KDF,
            wrap=XENC + "kw-aes256",
        )
    )
    root, private = parse(sent.envelope), pair.private_key
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert _find(root, "NamedCurve").get("URI") == "urn:oid:1.2.840.10045.3.1.7"
    public = ec.EllipticCurvePublicKey.from_encoded_point(
        ec.SECP256R1(), _octets(root, "ECKeyValue", "PublicKey")
    )
    parameters = _find(root, "ConcatKDFParams")
    other = b"".join(
        bytes.fromhex(parameters.get(name, ""))[1:]
        for name in ("AlgorithmID", "PartyUInfo", "PartyVInfo")
    )
    secret = private.exchange(ec.ECDH(), public)
    wrapping = hashlib.sha256((1).to_bytes(4) + secret + other).digest()
    wrapped = _octets(root, "EncryptedKey", "CipherValue")
    _assert_plain(aes_key_unwrap(wrapping, wrapped), sent)


def test_a_message_made_by_hand_with_an_oaep_label_and_listed_data_opens() -> None:
    sent = sealed(to_rsa())
    root = parse(sent.envelope)
    dice = Dice()
    key = dice(16)
    public = recipient().certificate.public_key()
    assert isinstance(public, rsa.RSAPublicKey)
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"label")
    value = base64.b64encode(public.encrypt(key, oaep)).decode()
    _find(root, "EncryptedKey", "CipherValue").text = value
    label = etree.Element(f"{{{XENC}}}OAEPparams")
    label.text = base64.b64encode(b"label").decode()
    _find(root, "EncryptedKey", "EncryptionMethod").insert(0, label)
    for data in root.iter(f"{{{XENC}}}EncryptedData"):
        data.remove(_find(data, "KeyInfo"))
    assert_open(opened(etree.tostring(root), [recipient()], attachments=sent.attachments))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 15, 16, 17, 32, 1000])
@pytest.mark.parametrize("uri", CBC, ids=_named)
def test_cbc_opens_by_hand_with_the_last_byte_as_padding_length(uri: str, size: int) -> None:
    cipher = DATA_CIPHERS[uri]
    dice = Dice()
    key, plain = dice(cipher.key_bytes), dice(size)
    block = iv_bytes(cipher)
    iv = dice(block)
    blob = read_all(Sealed(cipher, key, iv, BytesContent(plain)), MIB)
    algorithm = TripleDES(key) if block == 8 else AES(key)
    decryptor = Cipher(algorithm, modes.CBC(blob[:block])).decryptor()
    padded = decryptor.update(blob[block:]) + decryptor.finalize()
    assert blob[:block] == iv
    assert 1 <= padded[-1] <= block
    assert padded[: -padded[-1]] == plain
    result = decrypt_content(cipher, key, BytesContent(blob), BytesSink)
    assert read_all(result.content, MIB) == plain


class Pieces:
    """Content that comes in pieces of one's own cut."""

    def __init__(self, data: bytes, cut: int) -> None:
        self._pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
        self.size = len(data)

    def chunks(self) -> Iterator[bytes]:
        for piece in self._pieces:
            yield piece
            yield b""


@pytest.mark.parametrize("cut", [1, 5, 12, 13, 16, 27, 28, 29, 100])
@pytest.mark.parametrize("uri", DATA_CIPHERS, ids=_named)
def test_how_the_content_is_cut_does_not_matter(uri: str, cut: int) -> None:
    cipher = DATA_CIPHERS[uri]
    dice = Dice()
    key, iv = dice(cipher.key_bytes), dice(iv_bytes(cipher))
    for plain in (b"", b"x", bytes(range(200))):
        whole = read_all(Sealed(cipher, key, iv, BytesContent(plain)), MIB)
        cut_in = read_all(Sealed(cipher, key, iv, Pieces(plain, cut)), MIB)
        assert cut_in == whole
        result = decrypt_content(cipher, key, Pieces(whole, cut), BytesSink)
        assert read_all(result.content, MIB) == plain
        assert result.sha256 == hashlib.sha256(plain).digest()


@pytest.mark.parametrize("size", range(28))
def test_content_too_short_for_iv_and_tag_does_not_open(size: int) -> None:
    with pytest.raises(NotDecrypted):
        decrypt_content(
            DATA_CIPHERS[alg.AES128_GCM], bytes(16), BytesContent(bytes(size)), BytesSink
        )


@pytest.mark.parametrize("size", [0, 8, 16, 31, 33, 47])
def test_cbc_content_of_a_wrong_size_does_not_open(size: int) -> None:
    with pytest.raises(NotDecrypted):
        decrypt_content(
            DATA_CIPHERS[XENC + "aes128-cbc"], bytes(16), BytesContent(bytes(size)), BytesSink
        )


class Recording:
    """A sink that tells what became of it."""

    def __init__(self) -> None:
        self.written = 0
        self.finished = self.discarded = False

    def write(self, data: bytes | memoryview) -> None:
        self.written += len(data)

    def finish(self) -> Content:
        self.finished = True
        return BytesContent(b"")

    def discard(self) -> None:
        self.discarded = True


class Large:
    """32 MiB that nobody holds."""

    size = 32 * MIB

    def __init__(self, piece: bytes = bytes(CHUNK)) -> None:
        self._piece = piece

    def chunks(self) -> Iterator[bytes]:
        for _ in range(self.size // CHUNK):
            yield self._piece


@pytest.mark.parametrize("uri", [alg.AES128_GCM, XENC + "aes256-cbc"], ids=_named)
def test_large_content_passes_through_in_small_memory(uri: str) -> None:
    cipher = DATA_CIPHERS[uri]
    key, iv = bytes(cipher.key_bytes), bytes(iv_bytes(cipher))
    tracemalloc.start()
    try:
        blob = Sealed(cipher, key, iv, Large())
        plain = decrypt_content(cipher, key, blob, SpoolSink)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plain.content.size == Large.size
    assert plain.sha256 == hashlib.sha256(bytes(Large.size)).digest()
    assert peak < 6 * MIB


def test_plaintext_is_thrown_away_when_the_tag_is_wrong() -> None:
    cipher = DATA_CIPHERS[alg.AES256_GCM]
    blob = bytearray(
        read_all(
            Sealed(cipher, bytes(32), bytes(12), BytesContent(bytes(MIB))),
            2 * MIB,
        )
    )
    blob[-1] ^= 1
    sink = Recording()
    with pytest.raises(NotDecrypted):
        decrypt_content(cipher, bytes(32), BytesContent(bytes(blob)), lambda: sink)
    assert sink.written == MIB
    assert sink.discarded
    assert not sink.finished


def test_plaintext_is_thrown_away_when_reading_fails() -> None:
    class Failing(Large):
        def chunks(self) -> Iterator[bytes]:
            yield bytes(CHUNK)
            raise OSError("disk gone")

    sink = Recording()
    with pytest.raises(OSError, match="disk gone"):
        decrypt_content(DATA_CIPHERS[alg.AES256_GCM], bytes(32), Failing(), lambda: sink)
    assert sink.discarded
    assert not sink.finished


@pytest.mark.parametrize("uri", DATA_CIPHERS, ids=_named)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_sealed_content_knows_its_size_and_reads_the_same_again(uri: str, size: int) -> None:
    cipher = DATA_CIPHERS[uri]
    content = BytesContent(bytes(size))
    sealed_content = Sealed(cipher, bytes(cipher.key_bytes), bytes(iv_bytes(cipher)), content)
    once = b"".join(sealed_content.chunks())
    assert len(once) == sealed_content.size
    assert b"".join(sealed_content.chunks()) == once


def test_a_tampered_attachment_never_reaches_its_sink_as_finished() -> None:
    sent = sealed(to_rsa())
    sinks: list[Recording] = []

    def new_sink() -> Recording:
        sinks.append(Recording())
        return sinks[-1]

    touched = [_touched(one, -1) for one in sent.attachments]
    result = opened(sent, [recipient()], attachments=touched, new_sink=new_sink)
    assert result.details == [CLOSED, CLOSED, CLOSED]
    assert [(sink.finished, sink.discarded) for sink in sinks] == [(False, True)] * 3


def _touched(attachment: Attachment, at: int) -> Attachment:
    data = bytearray(read_all(attachment.content, MIB))
    data[at] ^= 0x10
    return replace(attachment, content=BytesContent(bytes(data)))


@pytest.mark.parametrize("at", [0, 11, 12, 500, -17, -16, -1])
def test_a_touched_bit_anywhere_keeps_the_attachment_closed(at: int) -> None:
    sent = sealed(to_rsa(), body="")
    one, two, three = sent.attachments
    touched = [one, _touched(two, at), three]
    result = opened(sent, [recipient()], attachments=touched)
    assert result.details == [CLOSED]
    assert result.codes == {"EBMS:0102"}
    assert result.decryption.decrypted is False
    assert result.decryption.attachments["two@a"] is touched[1]
    assert result.plain["one@a"] == ("application/xml", b"<order/>")


def _with_octets(envelope: bytes, change: Callable[[bytes], bytes], *names: str) -> bytes:
    root = parse(envelope)
    element = _find(root, *names)
    data = change(base64.b64decode(element.text or ""))
    element.text = base64.b64encode(data).decode()
    return etree.tostring(root)


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes((data[at] ^ 1,)) + data[at:][1:]


@pytest.mark.parametrize(
    "change",
    [_flip(0), _flip(5), _flip(100), lambda data: data[:-1], lambda data: b"", lambda d: d + b"x"],
)
@pytest.mark.parametrize("key", [alg.RSA_OAEP, alg.RSA_OAEP_MGF1P, alg.RSA_1_5], ids=_named)
def test_a_touched_key_says_no_more_than_a_touched_content(
    key: str, change: Callable[[bytes], bytes]
) -> None:
    sent = sealed(to_rsa(key=key), attachments=ATTACHMENTS[:1], body="")
    envelope = _with_octets(sent.envelope, change, "EncryptedKey", "CipherValue")
    touched_key = opened(envelope, [recipient()], attachments=sent.attachments, algorithms=SHAKY)
    touched_content = opened(
        sent, [recipient()], attachments=[_touched(sent.attachments[0], 20)], algorithms=SHAKY
    )
    assert [str(problem) for problem in touched_key.decryption.problems] == [
        str(problem) for problem in touched_content.decryption.problems
    ]
    assert touched_key.details == [CLOSED]


@pytest.mark.parametrize(
    "names",
    [
        ("EncryptedKey", "CipherValue"),
        ("OriginatorKeyInfo", "DEREncodedKeyValue"),
        ("Salt",),
        ("Body", "CipherValue"),
    ],
)
def test_a_touched_bit_of_a_key_agreement_keeps_the_message_closed(names: Sequence[str]) -> None:
    sent = sealed(to_x25519(), attachments=())
    at = -1 if names[0] == "OriginatorKeyInfo" else 3
    envelope = _with_octets(sent.envelope, lambda d: _flip(len(d) - 1 if at < 0 else at)(d), *names)
    result = opened(envelope, [recipient("x25519")])
    assert result.details == [CLOSED]
    assert b"copper" not in etree.tostring(result.envelope.root)


@pytest.mark.parametrize(
    ("encryption", "kind"),
    [
        (to_rsa(), "rsa"),
        (to_rsa(), "p256"),
        (to_x25519(), "x25519"),
        (to_x25519(), "x448"),
        (to_x25519(), "p256"),
        (to_x25519(), "rsa"),
    ],
)
def test_the_key_of_somebody_else_opens_nothing_though_the_message_names_it(
    encryption: Encryption, kind: str
) -> None:
    other = recipient(kind, "somebody else")
    named = other.certificate.public_bytes(pki.Encoding.DER)
    sent = sealed(encryption)
    envelope = _with_octets(sent.envelope, lambda _: named, "BinarySecurityToken")
    result = opened(envelope, [other], attachments=sent.attachments)
    assert set(result.details) == {CLOSED}
    assert result.decryption.decrypted is False


def test_a_message_for_somebody_else_is_told_with_the_name() -> None:
    result = opened(sealed(to_rsa()), [recipient("x25519")])
    assert result.decryption.present
    assert not result.decryption.decrypted
    assert "recipient rsa" in result.details[0]
    assert all(p.severity is Severity.FAILURE for p in result.decryption.problems)


def test_without_any_key_an_encrypted_message_is_no_failure() -> None:
    for form in (TokenReference.BINARY_SECURITY_TOKEN, TokenReference.THUMBPRINT):
        result = opened(sealed(replace(to_rsa(), reference=form)), [])
        assert result.decryption.present
        assert not result.decryption.decrypted
        assert {p.severity for p in result.decryption.problems} == {Severity.WARNING}


def test_a_renewed_certificate_with_the_same_key_still_opens() -> None:
    renewed = pki.issue(CA, "renewed", key="rsa", label="recipient rsa")
    sent = sealed(Encryption(renewed.certificate))
    assert renewed.certificate != recipient().certificate
    assert_open(opened(sent, [recipient()]))


@pytest.mark.parametrize(
    ("encryption", "said"),
    [
        (Encryption(recipient("p256").certificate), "RSA"),
        (Encryption(recipient("p256").certificate, key=alg.RSA_1_5), "RSA"),
        (Encryption(recipient().certificate, key=alg.ECDH_ES), "does not fit"),
        (Encryption(recipient("x448").certificate, key=alg.X25519), "does not fit"),
        (Encryption(recipient("x25519").certificate, key=alg.X448), "does not fit"),
        (Encryption(recipient("ed25519").certificate, key=alg.X25519), "does not fit"),
        (Encryption(recipient("p192").certificate, key=alg.ECDH_ES), "curve"),
        (
            Encryption(recipient("x25519").certificate, key=alg.X25519, digest=alg.SHA1),
            "HKDF",
        ),
        (
            Encryption(
                pki.issue(CA, "no identifier", key="rsa", key_identifier=False).certificate,
                reference=TokenReference.SUBJECT_KEY_IDENTIFIER,
            ),
            "no subject key identifier",
        ),
    ],
)
def test_algorithms_that_do_not_fit_the_certificate_are_a_value_error(
    encryption: Encryption, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        sealed(encryption)


def test_encryption_without_entropy_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="entropy"):
        secure(SoapVersion.SOAP_12, [], ATTACHMENTS, encryption=to_rsa())


def test_the_same_entropy_gives_the_same_bytes() -> None:
    for key, kind in AGREEING:
        encryption = Encryption(recipient(kind).certificate, key=key)
        one, other = sealed(encryption), sealed(encryption)
        assert one.envelope == other.envelope
        assert [read_all(a.content, MIB) for a in one.attachments] == [
            read_all(a.content, MIB) for a in other.attachments
        ]


def test_with_rsa_only_the_wrapped_key_differs_under_the_same_entropy() -> None:
    one, other = sealed(to_rsa()), sealed(to_rsa())
    roots = [parse(made.envelope) for made in (one, other)]
    values = [_find(root, "EncryptedKey", "CipherValue") for root in roots]
    assert values[0].text != values[1].text
    for value in values:
        value.text = ""
    assert etree.tostring(roots[0]) == etree.tostring(roots[1])


def test_every_iv_and_the_key_come_from_the_entropy() -> None:
    dice = Dice()
    sent = sealed(to_rsa(), entropy=dice)
    key, *ivs = dice.given
    assert len(key) == 16
    assert [read_all(one.content, MIB)[:12] for one in sent.attachments] == ivs[:3]
    assert _octets(parse(sent.envelope), "Body", "CipherValue")[:12] == ivs[3]
    assert len(set(ivs)) == 4
    _assert_plain(key, sent)


def test_other_entropy_gives_other_bytes() -> None:
    second = Dice()
    second(1)
    one, other = sealed(to_x25519()), sealed(to_x25519(), entropy=second)
    assert read_all(one.attachments[2].content, MIB) != read_all(other.attachments[2].content, MIB)


def _changed(change: Callable[[etree._Element], None], encryption: Encryption | None = None) -> str:
    sent = sealed(encryption or to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    change(root)
    pairs = [recipient(), recipient("x25519"), recipient("p256")]
    result = opened(etree.tostring(root), pairs, attachments=sent.attachments)
    assert result.decryption.decrypted is False
    assert result.codes == {"EBMS:0102"}
    return "; ".join(result.details)


def _set(value: str, attribute: str, *names: str) -> Callable[[etree._Element], None]:
    return lambda root: _find(root, *names).set(attribute, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("http://example.com/a", "URI", "CipherReference"), "no attachment of this message"),
        (_set("file:///a", "URI", "CipherReference"), "no attachment of this message"),
        (_set("cid:other@a", "URI", "CipherReference"), "no attachment of this message"),
        (_set("", "URI", "CipherReference"), "no attachment of this message"),
        (_set(COMPLETE, "Type", "EncryptedData"), "is not supported"),
        (_set(XENC + "Content", "Type", "EncryptedData"), "is not supported"),
        (_set("urn:x", "Algorithm", "Transforms", "Transform"), "transforms"),
        (_set("urn:x", "Algorithm", "EncryptedData", "EncryptionMethod"), "not supported"),
        (_set("urn:x", "Algorithm", "EncryptedKey", "EncryptionMethod"), "not supported"),
        (_set("urn:x", "Algorithm", "DigestMethod"), "unknown digest"),
        (_set("urn:x", "Algorithm", "MGF"), "unknown digest or mask"),
        (_set("#nowhere", "URI", "EncryptedData", "Reference"), "nowhere"),
        (_set("#_key-token", "URI", "EncryptedData", "Reference"), "names no EncryptedKey"),
    ],
)
def test_encrypted_data_of_another_build_is_not_opened(
    change: Callable[[etree._Element], None], said: str
) -> None:
    assert said in _changed(change)


def _p256() -> Encryption:
    return Encryption(recipient("p256").certificate, key=alg.ECDH_ES, derivation=alg.CONCAT_KDF)


def _replaced_text(text: str, *names: str) -> Callable[[etree._Element], None]:
    def change(root: etree._Element) -> None:
        _find(root, *names).text = text

    return change


def _removed(*names: str) -> Callable[[etree._Element], None]:
    def change(root: etree._Element) -> None:
        element = _find(root, *names)
        parent = element.getparent()
        assert parent is not None
        parent.remove(element)

    return change


UNKNOWN_KEY: Final = base64.b64encode(
    pki.der(0x30, pki.der(0x30, pki.der(0x06, b"\x2b\x65\x01")) + pki.der(0x03, bytes(33)))
).decode()


@pytest.mark.parametrize(
    ("encryption", "change", "said"),
    [
        (to_x25519(), _set("urn:x", "Algorithm", "KeyDerivationMethod"), "key derivation by"),
        (to_x25519(), _set("urn:x", "Algorithm", "PRF"), "unknown PRF"),
        (to_x25519(), _replaced_text("32", "KeyLength"), "lengths that do not fit"),
        (to_x25519(), _replaced_text("A" * 1400, "Salt"), "lengths that do not fit"),
        (to_x25519(), _removed("PRF"), "PRF"),
        (to_x25519(), _removed("OriginatorKeyInfo"), "exactly one OriginatorKeyInfo"),
        (to_x25519(), _removed("RecipientKeyInfo"), "exactly one RecipientKeyInfo"),
        (to_x25519(), _removed("DEREncodedKeyValue"), "no key value that is supported"),
        (to_x25519(), _replaced_text("AAAA", "DEREncodedKeyValue"), CLOSED),
        (to_x25519(), _replaced_text(UNKNOWN_KEY, "DEREncodedKeyValue"), CLOSED),
        (to_x25519(), _replaced_text("*", "DEREncodedKeyValue"), "not base64"),
        (_p256(), _set("urn:oid:1.2.3", "URI", "NamedCurve"), "the curve '1.2.3'"),
        (_p256(), _set("urn:oid:1.3.132.0.34", "URI", "NamedCurve"), CLOSED),
        (_p256(), _replaced_text("AAAA", "ECKeyValue", "PublicKey"), CLOSED),
        (_p256(), _set("zz", "PartyUInfo", "ConcatKDFParams"), "not hexadecimal"),
        (_p256(), _set("0100", "PartyUInfo", "ConcatKDFParams"), "whole octets"),
        (_p256(), _set("00" * 2000, "PartyUInfo", "ConcatKDFParams"), "too long"),
        (_p256(), _set("0001", "PartyUInfo", "ConcatKDFParams"), CLOSED),
        (_p256(), _set("urn:x", "Algorithm", "ConcatKDFParams", "DigestMethod"), "unknown digest"),
        (
            _p256(),
            _set(XENC + "kw-aes256", "Algorithm", "EncryptedKey", "EncryptionMethod"),
            CLOSED,
        ),
    ],
)
def test_a_key_agreement_of_another_build_is_not_opened(
    encryption: Encryption, change: Callable[[etree._Element], None], said: str
) -> None:
    assert said in _changed(change, encryption)


def test_a_key_wrap_without_key_agreement_is_not_supported() -> None:
    change = _set(WRAPS[0], "Algorithm", "EncryptedKey", "EncryptionMethod")
    assert "not supported" in _changed(change)


def test_the_point_at_infinity_and_small_orders_open_nothing() -> None:
    zero = bytes.fromhex("302a300506032b656e032100") + bytes(32)
    text = base64.b64encode(zero).decode()
    assert _changed(_replaced_text(text, "DEREncodedKeyValue"), to_x25519()) == CLOSED


def test_encrypted_data_in_another_place_is_reported_and_left_closed() -> None:
    sent = sealed(to_rsa(), attachments=())
    root = parse(sent.envelope)
    body = read_envelope(root).body
    aside = etree.SubElement(body, "{urn:aside}aside")
    aside.append(body[0])
    result = opened(etree.tostring(root), [recipient()])
    assert any("not expected here" in detail for detail in result.details)
    assert not result.decryption.decrypted
    assert result.decryption.present


def test_a_key_that_opens_nothing_is_reported() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    _removed("EncryptedData")(root)
    result = opened(etree.tostring(root), [recipient()], attachments=sent.attachments)
    assert result.details == ["this EncryptedKey is not used by any EncryptedData"]
    assert result.decryption.present


def test_an_attachment_cannot_be_encrypted_twice() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    data = _find(root, "EncryptedData")
    again = parse(etree.tostring(data))
    again.set("Id", "again")
    data.addnext(again)
    result = opened(etree.tostring(root), [recipient()], attachments=sent.attachments)
    assert result.details == ["the attachment is encrypted more than once"]
    assert not result.decryption.decrypted


def test_the_number_of_keys_is_limited() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:2], body="")
    root = parse(sent.envelope)
    key, second = _find(root, "EncryptedKey"), list(root.iter(f"{{{XENC}}}EncryptedData"))[1]
    other = parse(etree.tostring(key))
    other.set("Id", "other")
    key.addnext(other)
    _find(second, "Reference").set("URI", "#other")
    envelope = etree.tostring(root)
    assert opened(envelope, [recipient()], attachments=sent.attachments).decryption.decrypted
    limited = opened(
        envelope, [recipient()], attachments=sent.attachments, limits=Limits(encrypted_keys=1)
    )
    assert "more than 1 EncryptedKeys" in limited.details


def test_the_number_of_encrypted_parts_is_limited() -> None:
    result = opened(sealed(to_rsa()), [recipient()], limits=Limits(references=3))
    assert "too many encrypted parts" in result.details
    assert not result.decryption.decrypted


def test_a_body_that_decrypts_to_something_else_than_xml_stays_closed() -> None:
    dice = Dice()
    sent = sealed(to_rsa(), attachments=(), entropy=dice)
    for plain in (b"<a>", b"</c><c>", b"\xff", b"<!DOCTYPE a><a/>", b"&x;"):
        blob = dice.given[1] + AESGCM(dice.given[0]).encrypt(dice.given[1], plain, None)
        envelope = _with_octets(sent.envelope, lambda _, blob=blob: blob, "Body", "CipherValue")
        result = opened(envelope, [recipient()])
        assert result.details == [CLOSED]


def test_the_media_type_of_an_encrypted_part_is_restored_without_parameters() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1], body="")
    root = parse(sent.envelope)
    assert _find(root, "EncryptedData").get("Type") == CONTENT_ONLY
    _find(root, "EncryptedData").set("MimeType", "Text/XML; charset=UTF-8")
    result = opened(etree.tostring(root), [recipient()], attachments=sent.attachments)
    assert result.decryption.attachments["one@a"].media_type == "text/xml"


def test_what_is_not_encrypted_is_handed_on_as_it_is() -> None:
    sent = sealed(to_rsa(), attachments=ATTACHMENTS[:1])
    other = Attachment("plain@a", BytesContent(b"plain"), "text/plain")
    result = opened(sent, [recipient()], attachments=[*sent.attachments, other])
    assert result.decryption.attachments["plain@a"] is other
    assert result.decryption.content_ids == ("one@a",)


def test_the_names_in_the_message_are_those_of_the_specifications() -> None:
    root = parse(sealed(to_x25519()).envelope)
    agreement = _find(root, "AgreementMethod")
    assert [one.tag for one in agreement] == [
        f"{{{XENC11}}}KeyDerivationMethod",
        f"{{{XENC}}}OriginatorKeyInfo",
        f"{{{XENC}}}RecipientKeyInfo",
    ]
    assert _find(agreement, "HKDFParams").tag == f"{{{DSIG_MORE_2021}}}HKDFParams"
    assert _find(agreement, "DEREncodedKeyValue").tag == f"{{{DSIG11}}}DEREncodedKeyValue"
    key = _find(root, "EncryptedKey")
    assert [etree.QName(one).localname for one in key] == [
        "EncryptionMethod",
        "KeyInfo",
        "CipherData",
        "ReferenceList",
    ]
    listed = {one.get("URI") for one in key.iter(f"{{{XENC}}}DataReference")}
    assert listed == {f"#{one.get('Id')}" for one in root.iter(f"{{{XENC}}}EncryptedData")}
    security = key.getparent()
    assert security is not None
    assert security.tag == f"{{{WSSE}}}Security"
    assert _find(root, "KeyInfo").tag == f"{{{DS}}}KeyInfo"
