"""Signals as strangers write them: about messages of others, unsigned or signed by anybody."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from lxml import etree

from postroad.security.algorithms import ECDSA_SHA256, RSA_SHA256
from postroad.security.keys import KeyPair, load_key_pair
from postroad.security.secure import Lifetime, secure
from postroad.security.sign import Block, Signing
from postroad.wire.names import DS, EB1, EB2, EB3, EBBP, S11, S12, WSA, WSR, WSRM, WSU
from postroad.wire.soap import SoapVersion
from tests import pki
from tests.attack.campaign.gates import SOAP11, SOAP12, new_id
from tests.fuzz.stateful_nodes import Sent

VERSION: Final = SoapVersion.SOAP_12
SELLER, BUYER = "urn:example:seller", "urn:example:buyer"
_PROOF: Final = re.compile(rb"<ds:SignedInfo.*?</ds:SignedInfo>", re.DOTALL)
_REFERENCE: Final = re.compile(rb"<ds:Reference .*?</ds:Reference>", re.DOTALL)
_COPY: Final = re.compile(rb"<eb:UserMessage[^>]*>(.*?)</eb:UserMessage>", re.DOTALL)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def stranger(name: str = SELLER) -> KeyPair:
    """A key with a certificate for a partner's name, of an authority that nobody trusts."""
    return pki.issue(pki.authority("Nobody of the campaign"), name, label="campaign stranger")


@cache
def key_of(folder: Path, name: str) -> KeyPair:
    """The key of a party, for controls: what it signs is believed."""
    return load_key_pair((folder / name / "keys" / f"{name}.p12").read_bytes())


# SOAP 1.2


def soap12(headers: Sequence[str], body: str = "", signer: KeyPair | None = None) -> bytes:
    """Write an envelope; everything in it is signed where there is a signer."""
    how = None
    if signer is not None:
        is_rsa = isinstance(signer.private_key, RSAPrivateKey)
        how = Signing(signer, RSA_SHA256 if is_rsa else ECDSA_SHA256)
    return secure(
        VERSION,
        [_block(f"_forged-{number}", one) for number, one in enumerate(headers)],
        (),
        signing=how,
        lifetime=Lifetime(datetime.now(UTC)) if how else None,
        body_content=body,
        namespaces={"wsrm": WSRM} if "wsrm:" in body else {},
    ).envelope


def _block(id: str, written: str) -> Block:
    element = etree.fromstring(written)
    element.set(f"{{{WSU}}}Id", id)
    return Block(id, etree.tostring(element, method="c14n", exclusive=True).decode())


def messaging(*units: str) -> str:
    return (
        f'<eb:Messaging xmlns:eb="{EB3}" xmlns:S12="{S12}" xmlns:wsu="{WSU}"'
        f' S12:mustUnderstand="true">{"".join(units)}</eb:Messaging>'
    )


def signal(content: str, ref: str | None = None) -> str:
    about = "" if ref is None else f"<eb:RefToMessageId>{ref}</eb:RefToMessageId>"
    return (
        f"<eb:SignalMessage><eb:MessageInfo><eb:Timestamp>{now()}</eb:Timestamp><eb:MessageId>"
        f"{new_id('signal')}</eb:MessageId>{about}</eb:MessageInfo>{content}</eb:SignalMessage>"
    )


def error(
    code: str = "EBMS:0004", severity: str = "failure", ref: str | None = None, text: str = "no"
) -> str:
    about = "" if ref is None else f' refToMessageInError="{ref}"'
    return (
        f'<eb:Error errorCode="{code}" severity="{severity}" category="Content" origin="ebMS"'
        f' shortDescription="Other"{about}><eb:Description xml:lang="en">{text}</eb:Description>'
        f"<eb:ErrorDetail>{text}</eb:ErrorDetail></eb:Error>"
    )


def proof(sent: bytes) -> str:
    """Return a receipt with all digests of a signed message."""
    found = _PROOF.search(sent)
    listed = (
        "".join(
            f"<ebbp:MessagePartNRInformation>{one.decode()}</ebbp:MessagePartNRInformation>"
            for one in _REFERENCE.findall(found.group())
            if found
        )
        if found
        else ""
    )
    listed = listed.replace("<ds:Reference ", f'<ds:Reference xmlns:ds="{DS}" ')
    return (
        f'<eb:Receipt><ebbp:NonRepudiationInformation xmlns:ebbp="{EBBP}">{listed}'
        "</ebbp:NonRepudiationInformation></eb:Receipt>"
    )


def copied(sent: bytes, element: str = "eb:UserMessage") -> str:
    """Return a receipt with a copy of the message's header."""
    [content] = _COPY.findall(sent)[:1]
    name = element.partition(":")[0]
    declared = "" if name == "eb" else f' xmlns:{name}="urn:postroad:ns:receipt"'
    return f"<eb:Receipt><{element}{declared}>{content.decode()}</{element}></eb:Receipt>"


def other_digests(receipt: str) -> str:
    wrong = "<ds:DigestValue>" + "A" * 43 + "=</ds:DigestValue>"
    return re.sub(r"<ds:DigestValue>.*?</ds:DigestValue>", wrong, receipt)


def fault12(code: str = "Receiver", subcode: str = "", detail: str = "", text: str = "no") -> str:
    below = f"<S12:Subcode><S12:Value>{subcode}</S12:Value></S12:Subcode>" if subcode else ""
    told = f"<S12:Detail>{detail}</S12:Detail>" if detail else ""
    return (
        f'<S12:Fault xmlns:S12="{S12}" xmlns:wsrm="{WSRM}"><S12:Code><S12:Value>S12:{code}'
        f'</S12:Value>{below}</S12:Code><S12:Reason><S12:Text xml:lang="en">{text}</S12:Text>'
        f"</S12:Reason>{told}</S12:Fault>"
    )


def addressing(action: str, relates_to: str | None = None) -> list[str]:
    made = [
        f'<wsa:Action xmlns:wsa="{WSA}">{action}</wsa:Action>',
        f'<wsa:MessageID xmlns:wsa="{WSA}">mid:{new_id("wsa")}</wsa:MessageID>',
    ]
    if relates_to is not None:
        made.append(f'<wsa:RelatesTo xmlns:wsa="{WSA}">{relates_to}</wsa:RelatesTo>')
    return made


def sequence_acknowledgement(identifier: str, content: str) -> str:
    return (
        f'<wsrm:SequenceAcknowledgement xmlns:wsrm="{WSRM}"><wsrm:Identifier>{identifier}'
        f"</wsrm:Identifier>{content}</wsrm:SequenceAcknowledgement>"
    )


def about_sequence(name: str, identifier: str, content: str = "") -> str:
    return (
        f'<wsrm:{name} xmlns:wsrm="{WSRM}"><wsrm:Identifier>{identifier}</wsrm:Identifier>'
        f"{content}</wsrm:{name}>"
    )


def wsr_response(content: str) -> str:
    return (
        f'<wsr:Response xmlns:wsr="{WSR}" xmlns:S12="{S12}" S12:mustUnderstand="true">{content}'
        "</wsr:Response>"
    )


# ebXML

_SERVICES: Final = {
    "0.98b": "uri:www.ebxml.org/messageService/",
    "1.0": "uri:www.ebxml.org/messageService/",
    "2.0": "urn:oasis:names:tc:ebxml-msg:service",
}


def ebxml(
    version: str,
    action: str,
    agreement: str,
    ref: str | None = None,
    *,
    header: str = "",
    body: str = "",
    sender: str = SELLER,
    receiver: str = BUYER,
    trace: str | None = None,
    service: str | None = None,
    message_id: str | None = None,
    conversation: str = "forged",
) -> bytes:
    """Write a message of an MSH to another one."""
    space = EB2 if version == "2.0" else EB1
    about = "" if ref is None else f"<eb:RefToMessageId>{ref}</eb:RefToMessageId>"
    way = ""
    if trace is not None and version == "0.98b":
        way = (
            f'<eb:TraceHeaderList SOAP-ENV:mustUnderstand="1" eb:version="{version}">'
            f"<eb:TraceHeader><eb:SenderURI>{trace}</eb:SenderURI><eb:ReceiverURI>"
            f"http://buyer.example/msh</eb:ReceiverURI><eb:Timestamp>{now()}</eb:Timestamp>"
            "</eb:TraceHeader></eb:TraceHeaderList>"
        )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><SOAP-ENV:Envelope xmlns:SOAP-ENV="{S11}"'
        f' xmlns:eb="{space}"><SOAP-ENV:Header><eb:MessageHeader SOAP-ENV:mustUnderstand="1"'
        f' eb:version="{version}"><eb:From><eb:PartyId>{sender}</eb:PartyId></eb:From><eb:To>'
        f"<eb:PartyId>{receiver}</eb:PartyId></eb:To><eb:CPAId>{agreement}</eb:CPAId>"
        f"<eb:ConversationId>{conversation}</eb:ConversationId><eb:Service>"
        f"{service or _SERVICES[version]}</eb:Service><eb:Action>{action}</eb:Action>"
        f"<eb:MessageData><eb:MessageId>{message_id or new_id('ebxml')}</eb:MessageId>"
        f"<eb:Timestamp>{now()}</eb:Timestamp>{about}</eb:MessageData></eb:MessageHeader>{way}"
        f"{header}</SOAP-ENV:Header><SOAP-ENV:Body>{body}</SOAP-ENV:Body></SOAP-ENV:Envelope>"
    ).encode()


def _marked(name: str, version: str) -> str:
    return f'<eb:{name} SOAP-ENV:mustUnderstand="1" eb:version="{version}"'


def ebxml_acknowledgment(version: str, agreement: str, ref: str, **more: str) -> bytes:
    made = (
        f"{_marked('Acknowledgment', version)}><eb:Timestamp>{now()}</eb:Timestamp>"
        f"<eb:RefToMessageId>{ref}</eb:RefToMessageId></eb:Acknowledgment>"
    )
    header = made if version == "2.0" else ""
    return ebxml(version, "Acknowledgment", agreement, ref, header=header, **more)


def ebxml_errors(
    version: str,
    agreement: str,
    ref: str,
    code: str = "SecurityFailure",
    severity: str = "Error",
    text: str = "no",
    **more: str,
) -> bytes:
    told = f'<eb:Description xml:lang="en">{text}</eb:Description>' if version == "2.0" else text
    header = (
        f'{_marked("ErrorList", version)} eb:highestSeverity="{severity}"><eb:Error'
        f' eb:errorCode="{code}" eb:severity="{severity}">{told}</eb:Error></eb:ErrorList>'
    )
    return ebxml(version, "MessageError", agreement, ref, header=header, **more)


def ebxml_status(version: str, agreement: str, ref: str, status: str) -> bytes:
    name = "StatusData" if version == "0.98b" else "StatusResponse"
    body = (
        f'<eb:{name} eb:version="{version}" eb:messageStatus="{status}"><eb:RefToMessageId>{ref}'
        f"</eb:RefToMessageId><eb:Timestamp>{now()}</eb:Timestamp></eb:{name}>"
    )
    return ebxml(version, "StatusResponse", agreement, body=body)


def fault11(text: str = "no", code: str = "Client") -> bytes:
    return (
        f'<SOAP-ENV:Envelope xmlns:SOAP-ENV="{S11}"><SOAP-ENV:Body><SOAP-ENV:Fault><faultcode>'
        f"SOAP-ENV:{code}</faultcode><faultstring>{text}</faultstring></SOAP-ENV:Fault>"
        "</SOAP-ENV:Body></SOAP-ENV:Envelope>"
    ).encode()


def request(to: str, body: bytes) -> Sent:
    """Return a request with an envelope, whichever SOAP it is."""
    is_new = S12.encode() in body
    headers = [("Content-Type", SOAP12 if is_new else SOAP11)]
    if not is_new:
        headers.append(("SOAPAction", '"ebXML"'))
    return Sent(to, tuple(headers), body)
