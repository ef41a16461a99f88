"""The Security parameters of a P-Mode leg (Core D.3.6, AS4 4.2, Part 2 6.7).

Parameters that no specification names are Postroad's own and say so. Certificates and keys are
names of files, relative to the P-Mode's file.
"""

from postroad.agreement.addressing import Addressing
from postroad.agreement.groups import REQUIRED, Group, Switch, parameter
from postroad.agreement.values import (
    CommaTexts,
    ContentIds,
    CopyElement,
    DigestAlgorithm,
    ElementNames,
    EncryptionAlgorithm,
    FileName,
    FileNames,
    KeyAgreement,
    KeyDerivation,
    KeyPurposes,
    KeyReference,
    KeyTransport,
    KeyWrap,
    MaskGeneration,
    Password,
    SignalReplyPattern,
    SignatureAlgorithm,
    Text,
    Texts,
    Uri,
    WssVersion,
)


class Covered(Switch):
    """What a signature or an encryption covers."""

    element: ElementNames | None = parameter(
        "Element[]",
        "Names of elements of the envelope that are covered too: Timestamp, wsu:Timestamp or "
        "{namespace}Timestamp.",
    )
    attachment: ContentIds | None = parameter(
        "Attachment[]",
        "Content-IDs of attachments that every message has, and that are covered.",
    )
    only: bool | None = parameter(
        "Only",
        "Cover nothing but what is listed, instead of the Body (with Element[]) and all "
        "attachments (with Attachment[]), as AS4 requires. Postroad's own.",
    )


class Signature(Group):
    """How messages are signed, and whose signature holds."""

    certificate: FileName | None = parameter("Certificate", "The signer's certificate.")
    hash_function: DigestAlgorithm | None = parameter(
        "HashFunction", "Digest algorithm of the signed parts."
    )
    algorithm: SignatureAlgorithm | None = parameter("Algorithm", "Signature algorithm.")
    key: FileName | None = parameter("Key", "The signer's private key. Postroad's own.")
    key_reference: KeyReference | None = parameter(
        "KeyReference", "How the signature refers to its certificate. Postroad's own."
    )
    raw: bool = parameter(
        "Raw",
        "Digest XML attachments as they stand instead of canonicalised. Postroad's own.",
        False,
    )
    pins: FileNames = parameter(
        "Pins",
        "The only certificates taken from the signer; two during a renewal. Postroad's own.",
        (),
        max_length=2,
    )
    trust_anchors: FileNames = parameter(
        "AnchorCertificates", "Roots that the signer's certificate leads to. Postroad's own.", ()
    )
    subjects: Texts | None = parameter(
        "Subject[]",
        "Common, distinguished or alternative names of the signer's certificate; unset: the "
        "sender's party id. Of no matter with pins. Postroad's own.",
    )
    policies: Texts | None = parameter(
        "Policy[]",
        "Certificate policies (OIDs), one of which the signer's certificate carries. "
        "Postroad's own.",
    )
    purposes: KeyPurposes | None = parameter(
        "Purpose[]",
        "Extended key usages, by name or OID, with which a certificate may sign; unset: "
        "clientAuth, emailProtection, documentSigning, msDocumentSigning. Of no matter with pins. "
        "Postroad's own.",
    )


class Encryption(Group):
    """What is encrypted, how, and for whom."""

    encrypt: Covered | None = parameter("Encrypt", "Whether payloads are encrypted.")
    certificate: FileName | None = parameter("Certificate", "The recipient's certificate.")
    algorithm: EncryptionAlgorithm | None = parameter("Algorithm", "Data encryption algorithm.")
    minimum_strength: int | None = parameter(
        "MinimumStrength", "The least strength in bits that is taken.", ge=0, le=512
    )
    key: FileName | None = parameter("Key", "The recipient's private key. Postroad's own.")
    key_reference: KeyReference | None = parameter(
        "KeyReference", "How the recipient's certificate is referred to. Postroad's own."
    )
    key_transport: KeyTransport | None = parameter(
        "KeyTransport", "Algorithm that encrypts the data key for RSA. Postroad's own."
    )
    digest: DigestAlgorithm | None = parameter(
        "Digest", "Digest of RSA-OAEP or of the key derivation. Postroad's own."
    )
    mgf: MaskGeneration | None = parameter(
        "MGF", "Mask generation function of RSA-OAEP. Postroad's own."
    )
    key_agreement: KeyAgreement | None = parameter(
        "KeyAgreement", "Algorithm that agrees on a key for EC keys. Postroad's own."
    )
    key_derivation: KeyDerivation | None = parameter(
        "KeyDerivation", "Function that derives the wrapping key. Postroad's own."
    )
    key_wrap: KeyWrap | None = parameter(
        "KeyWrap", "Algorithm that wraps the data key with the derived key. Postroad's own."
    )


class X509(Group):
    """Signature and encryption with X.509 certificates."""

    sign: Covered | None = parameter("Sign", "Whether messages are signed.")
    signature: Signature | None = parameter("Signature", "How messages are signed.")
    encryption: Encryption | None = parameter("Encryption", "How messages are encrypted.")


class UsernameToken(Group):
    """The username token of the message."""

    username: Text = parameter("username", "The user's name.", REQUIRED)
    password: Password = parameter("password", "The user's password.", REQUIRED)
    digest: bool = parameter("Digest", "Send a digest instead of the password.", True)
    nonce: bool = parameter("Nonce", "Send a nonce, against replay.", True)
    created: bool = parameter("Created", "Send the time of creation, against replay.", True)


class SendReceipt(Switch):
    """The receipt that answers a user message."""

    reply_pattern: SignalReplyPattern | None = parameter(
        "ReplyPattern", "How receipts come back: response, callback, or pull (multi-hop)."
    )
    reply_to: Uri | None = parameter(
        "ReplyTo", "Where receipts are sent when they are not the response."
    )
    addressing: Addressing | None = parameter("Addressing", "Where receipts are routed to.")
    certificate: FileName | None = parameter(
        "Certificate",
        "The certificate of who signs receipts and errors; unset: that of encryption. "
        "Postroad's own.",
    )
    non_repudiation: bool | None = parameter(
        "NonRepudiation", "Whether a receipt holds signed digests of what was received."
    )
    copy_element: CopyElement = parameter(
        "CopyElement",
        "The element that copies eb:UserMessage into the receipt for an unsigned message: one of "
        "another namespace (extension), as the schema of Core 3.0 requires, or eb:UserMessage "
        "itself (core). Both are read. Postroad's own.",
        "extension",
    )
    allow_unsigned_routing: bool = parameter(
        "AllowUnsignedRouting",
        "Accept multi-hop receipts and errors whose signature leaves out wsa:To, wsa:Action and "
        "the routing input, as AS4.NET writes them. Postroad's own.",
        False,
    )


class Conversation(Switch):
    """Secure conversations (WS-SecureConversation)."""

    correlation: CommaTexts | None = parameter(
        "Correlation", "XPaths whose values tell which messages share a conversation."
    )


class Security(Group):
    """Message security of a leg."""

    wss_version: WssVersion | None = parameter("WSSVersion", "The version of WS-Security.")
    x509: X509 | None = parameter("X509", "Signature and encryption.")
    username_token: UsernameToken | None = parameter("UsernameToken", "The username token.")
    pmode_authorize: bool | None = parameter(
        "PModeAuthorize", "Whether messages are authorized against Initiator/Responder."
    )
    send_receipt: SendReceipt | None = parameter("SendReceipt", "Whether receipts are sent.")
    conversation: Conversation | None = parameter(
        "Conversation", "Whether messages belong to secure conversations."
    )
