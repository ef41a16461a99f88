"""Messages that WSS4J is asked to write: every shape that its builders offer and we should read.

Header and payloads come from us, all security from WSS4J. `requests(folder)` needs no Java.
"""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from postroad.agreement.algorithms import ALGORITHMS
from postroad.wire.ebms3 import Messaging
from postroad.wire.ebms3_writer import write_messaging
from postroad.wire.names import DSIG_MORE_2001, EB3, S11, S12, WSU
from postroad.wire.soap import SoapVersion, write_body, write_envelope
from tests.interop.wss4j_keys import PASSWORD
from tests.interop.wss4j_messages import MIXED, ONE, SOAP, Agreed, Payload, message

SIGNATURE: Final = ALGORITHMS["signature"]
DIGEST: Final = ALGORITHMS["digest"]
DATA: Final = ALGORITHMS["encryption"]
TRANSPORT: Final = ALGORITHMS["key_transport"]
REFERENCES: Final = (
    "direct",
    "pki_path",
    "issuer_serial",
    "issuer_serial_quoted",
    "subject_key_identifier",
    "thumbprint",
    "key_identifier",
)
RECIPIENT_REFERENCES: Final = (*(one for one in REFERENCES if one != "pki_path"), "x509_ski")
SWA_CONTENT, SWA_COMPLETE = "Content", "Element"
CONTENT: Final = '<o:Order xmlns:o="urn:o" a="1">5 &lt; 6</o:Order>'


@dataclass(frozen=True)
class Request:
    """What WSS4J is to write, and what we have to find in it."""

    family: str
    name: str
    call: dict[str, Any]
    signed: tuple[str, ...]
    """Local names of elements, and `cid:` URLs."""
    attachments: dict[str, str]
    """SHA-256 of each payload, by Content-ID."""
    legacy: bool = False
    """It uses a weak algorithm, which is taken only where an agreement names it."""

    @property
    def file(self) -> Path:
        return Path(self.call["file"])


@dataclass
class _Requests:
    folder: Path
    made: list[Request] = field(default_factory=list)

    def add(
        self,
        family: str,
        name: str,
        *,
        soap: str = "1.2",
        payloads: Sequence[Payload] = ONE,
        sign: dict[str, Any] | None = None,
        encrypt: dict[str, Any] | None = None,
        order: tuple[str, ...] = (),
        attached: str = SWA_CONTENT,
        body: str = "",
        legacy: bool = False,
        **call: Any,
    ) -> None:
        """Ask for a message; by default it is signed and, with `encrypt`, encrypted after that."""
        number, version = len(self.made), SOAP[soap]
        package = message(Agreed(soap, signature=None), payloads)
        envelope = write_envelope(
            version,
            [write_messaging(Messaging((package.user_message,)), version)],
            write_body(version, body),
        )
        source = self.folder / f"{number:03}.xml"
        source.write_bytes(envelope)
        attachments, digests = [], {}
        for part, (media_type, content) in zip(package.parts, payloads, strict=True):
            file = self.folder / f"{number:03}-{len(attachments)}.bin"
            file.write_bytes(content)
            identifier = part.payload.content_id
            attachments.append({"id": identifier, "media_type": media_type, "file": str(file)})
            digests[identifier] = hashlib.sha256(content).hexdigest()
        steps = order or (("sign", "encrypt") if encrypt is not None else ("sign",))
        names = ["Messaging", "Body", "Timestamp"] if "sign" in steps else []
        cids = [f"cid:{one}" for one in digests] if "sign" in steps else []
        self.made.append(
            Request(
                family,
                f"{number:03} {name}",
                {
                    "name": f"{number:03} {name}",
                    "envelope": str(source),
                    "file": str(self.folder / f"{number:03}.out"),
                    "soap_type": version.media_type,
                    "attachments": attachments,
                    "timestamp_seconds": 10 * 365 * 86400,
                    "order": steps,
                    "sign": _signature(version, bool(attachments), attached) | (sign or {}),
                    "encrypt": _encryption(version, bool(attachments), attached, body)
                    | (encrypt or {}),
                    **call,
                },
                tuple(sorted([*names, *cids])),
                digests,
                legacy,
            )
        )


def _part(name: str, namespace: str = "", modifier: str = "") -> dict[str, str]:
    return {"name": name, "namespace": namespace, "modifier": modifier}


def _envelope_namespace(version: SoapVersion) -> str:
    return S11 if version is SoapVersion.SOAP_11 else S12


def _signature(version: SoapVersion, attachments: bool, attached: str) -> dict[str, Any]:
    parts = [
        _part("Body", _envelope_namespace(version)),
        _part("Timestamp", WSU),
        _part("Messaging", EB3),
    ]
    if attachments:
        parts.append(_part("attachments", modifier=attached))
    return {
        "key": "new-rsa",
        "reference": "direct",
        "algorithm": SIGNATURE["rsa-sha256"],
        "digest": DIGEST["sha256"],
        "inclusive_prefixes": True,
        "parts": parts,
    }


def _encryption(
    version: SoapVersion, attachments: bool, attached: str, body: str
) -> dict[str, Any]:
    parts = [_part("attachments", modifier=attached)] if attachments else []
    if body:
        parts.append(_part("Body", _envelope_namespace(version), "Content"))
    return {
        "key": "recipient-rsa",
        "reference": "direct",
        "data": DATA["aes128-gcm"],
        "key_algorithm": TRANSPORT["rsa-oaep"],
        "digest": DIGEST["sha256"],
        "mgf": ALGORITHMS["mgf"]["mgf1sha256"],
        "parts": parts,
    }


def _is_weak(name: str) -> bool:
    return any(one in name for one in ("sha1", "cbc", "1_5"))


def _signatures(requests: _Requests) -> None:
    curves = ("p256", "p384", "p521", "brainpool")
    for name, uri in SIGNATURE.items():
        if name in ("rsa-md5", "dsa-sha1"):
            continue
        kinds = {"rsa": ("rsa",), "ecdsa": curves}.get(name.partition("-")[0], (name[6:],))
        for kind, soap in itertools.product(kinds, SOAP):
            sign = {"key": f"new-{kind}", "algorithm": uri, "bouncy_castle": kind == "brainpool"}
            said = f"{name} {kind} SOAP {soap}"
            requests.add("signature algorithms", said, soap=soap, sign=sign, legacy=_is_weak(name))
    for digest in ("sha256", "sha384", "sha512", "sha1"):
        requests.add(
            "digest algorithms",
            digest,
            payloads=MIXED,
            sign={"digest": DIGEST[digest]},
            legacy=_is_weak(digest),
        )


def _references(requests: _Requests) -> None:
    for form, (kind, algorithm), soap in itertools.product(
        REFERENCES,
        (("rsa", "rsa-sha256"), ("p256", "ecdsa-sha256"), ("ed25519", "eddsa-ed25519")),
        SOAP,
    ):
        key = "known" if form not in ("direct", "pki_path") else "new"
        sign = {"key": f"{key}-{kind}", "reference": form, "algorithm": SIGNATURE[algorithm]}
        requests.add("token references", f"{form} {kind} SOAP {soap}", soap=soap, sign=sign)
    for form, kind in itertools.product(RECIPIENT_REFERENCES, ("rsa", "p256", "x25519")):
        encrypt = {"key": f"recipient-{kind}", "reference": form}
        if kind != "rsa":
            encrypt |= _agreement(kind, "hkdf", "kw-aes128")
        requests.add("recipient references", f"{form} {kind}", encrypt=encrypt)


def _attachments(requests: _Requests) -> None:
    for (name, payloads), attached, encrypted in itertools.product(
        {
            "XML": (("application/xml", b'<a  b="1"\n c="2"/>'),),
            "text": (("text/plain", b"a\nb\r\nc"),),
            "mixed": MIXED,
        }.items(),
        (SWA_CONTENT, SWA_COMPLETE),
        (False, True),
    ):
        transform = "content" if attached == SWA_CONTENT else "complete"
        family = f"attachments with Attachment-{transform.title()}"
        said = f"{name}{', encrypted' if encrypted else ''}"
        requests.add(
            family, said, payloads=payloads, attached=attached, encrypt={} if encrypted else None
        )


def _rsa(requests: _Requests) -> None:
    digests = ("sha1", "sha256", "sha384", "sha512")
    for mgf, digest in itertools.product(ALGORITHMS["mgf"], digests):
        encrypt = {"digest": DIGEST[digest], "mgf": ALGORITHMS["mgf"][mgf]}
        requests.add("encryption with RSA", f"rsa-oaep {mgf} {digest}", encrypt=encrypt)
    for digest in digests:
        encrypt = {
            "key_algorithm": TRANSPORT["rsa-oaep-mgf1p"],
            "digest": DIGEST[digest],
            "mgf": None,
        }
        requests.add("encryption with RSA", f"rsa-oaep-mgf1p {digest}", encrypt=encrypt)
    requests.add(
        "encryption with RSA",
        "rsa-1_5",
        encrypt={"key_algorithm": TRANSPORT["rsa-1_5"], "digest": None, "mgf": None},
        legacy=True,
    )
    for (name, uri), soap in itertools.product(DATA.items(), SOAP):
        requests.add(
            "encryption with RSA",
            f"{name} SOAP {soap}",
            soap=soap,
            payloads=MIXED,
            encrypt={"data": uri},
            legacy=_is_weak(name),
        )


def _agreement(kind: str, derivation: str, wrap: str) -> dict[str, Any]:
    agreement = kind if kind.startswith("x") else "ecdh-es"
    return {
        "key_algorithm": ALGORITHMS["key_wrap"][wrap],
        "agreement": ALGORITHMS["key_agreement"][agreement],
        "derivation": ALGORITHMS["kdf"][derivation],
        "digest": None,
        "mgf": None,
    }


def _key_agreement(requests: _Requests) -> None:
    bits = {"kw-aes128": 128, "kw-aes192": 192, "kw-aes256": 256}
    digests = {"hkdf": DSIG_MORE_2001 + "hmac-sha{}", "concat-kdf": "{}"}
    for kind, derivation, wrap, digest in itertools.product(
        ("p256", "p384", "p521", "brainpool", "x25519", "x448"),
        ("hkdf", "concat-kdf"),
        bits,
        ("", "256", "512"),
    ):
        encrypt = {"key": f"recipient-{kind}", "bouncy_castle": kind == "brainpool"}
        encrypt |= _agreement(kind, derivation, wrap)
        if digest:
            uri = DIGEST[f"sha{digest}"] if derivation == "concat-kdf" else digest
            encrypt["derivation_digest"] = digests[derivation].format(uri)
            encrypt["derivation_bits"] = bits[wrap]
        if digest == "512":
            encrypt["info"] = "what the key is for"
        said = f"{kind} {derivation} {wrap} {(digest and 'sha' + digest) or 'as WSS4J has it'}"
        requests.add("encryption with key agreement", said, encrypt=encrypt)


def _others(requests: _Requests) -> None:
    for soap, encrypted in itertools.product(SOAP, (False, True)):
        requests.add(
            "Body content",
            f"SOAP {soap}{', encrypted' if encrypted else ''}",
            soap=soap,
            payloads=(),
            body=CONTENT,
            encrypt={} if encrypted else None,
        )
    for soap, digest in itertools.product(SOAP, (True, False)):
        user = {"user": "buyer", "password": PASSWORD, "digest": digest}
        name = f"{'digest' if digest else 'text'} SOAP {soap}"
        requests.add("user name tokens", name, soap=soap, username=user)
    requests.add("encryption with RSA", "not signed", encrypt={}, order=("encrypt",))
    requests.add(
        "signature algorithms", "without inclusive prefixes", sign={"inclusive_prefixes": False}
    )


def requests(folder: Path) -> tuple[Request, ...]:
    """Write what WSS4J needs into the folder, and return what it is asked for."""
    found = _Requests(folder)
    for family in (_signatures, _references, _attachments, _rsa, _key_agreement, _others):
        family(found)
    return tuple(found.made)
