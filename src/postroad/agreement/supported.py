"""Which P-Mode parameters have a behaviour in this version. All others are refused by name.

A parameter gets its line here together with the code that honours it. A name that ends in `.*`
stands for everything below it.
"""

from typing import Final

from postroad.agreement.parameters import PARAMETERS, Parameter

_TABLE = """
PMode.ID
PMode.Agreement
PMode.Agreement.type
PMode.Agreement.IncludePMode
PMode.Agreement.MatchPMode
PMode.MEP
PMode.MEPbinding
PMode.MEPbinding.Alternate
PMode.MEPbinding.Pipelining
PMode.MEPbinding.PulledBy
PMode.Initiator.Party[]
PMode.Initiator.Party[].type
PMode.Initiator.Role
PMode.Initiator.Authorization.*
PMode.Initiator.Addressing.*
PMode.Responder.Party[]
PMode.Responder.Party[].type
PMode.Responder.Role
PMode.Responder.Authorization.*
PMode.Responder.Addressing.*
PMode[].Protocol.Address
PMode[].Protocol.SOAPVersion
PMode[].Protocol.AddActorOrRoleAttribute
PMode[].Protocol.Restart
PMode[].Protocol.Restart.*
PMode[].BusinessInfo.Service
PMode[].BusinessInfo.Service.type
PMode[].BusinessInfo.Action
PMode[].BusinessInfo.MPC
PMode[].BusinessInfo.MPC.Alternate
PMode[].BusinessInfo.subMPCext
PMode[].BusinessInfo.Properties[].*
PMode[].BusinessInfo.PayloadProfile.maxSize
PMode[].BusinessInfo.PayloadProfile[].*
PMode[].Addressing.*
PMode[].bundling.*
PMode[].Splitting
PMode[].Splitting.*
PMode[].Security.WSSVersion
PMode[].Security.X509.Sign
PMode[].Security.X509.Sign.*
PMode[].Security.X509.Signature.Algorithm
PMode[].Security.X509.Signature.AnchorCertificates
PMode[].Security.X509.Signature.Certificate
PMode[].Security.X509.Signature.HashFunction
PMode[].Security.X509.Signature.Key
PMode[].Security.X509.Signature.KeyReference
PMode[].Security.X509.Signature.Pins
PMode[].Security.X509.Signature.Raw
PMode[].Security.X509.Signature.Subject[]
PMode[].Security.X509.Signature.Policy[]
PMode[].Security.X509.Signature.Purpose[]
PMode[].Security.X509.Encryption.Algorithm
PMode[].Security.X509.Encryption.Certificate
PMode[].Security.X509.Encryption.Digest
PMode[].Security.X509.Encryption.Encrypt
PMode[].Security.X509.Encryption.Encrypt.*
PMode[].Security.X509.Encryption.Key
PMode[].Security.X509.Encryption.KeyAgreement
PMode[].Security.X509.Encryption.KeyDerivation
PMode[].Security.X509.Encryption.KeyReference
PMode[].Security.X509.Encryption.KeyTransport
PMode[].Security.X509.Encryption.KeyWrap
PMode[].Security.X509.Encryption.MGF
PMode[].Security.X509.Encryption.MinimumStrength
PMode[].Security.UsernameToken.*
PMode[].Security.PModeAuthorize
PMode[].Security.SendReceipt
PMode[].Security.SendReceipt.NonRepudiation
PMode[].Security.SendReceipt.Certificate
PMode[].Security.SendReceipt.ReplyPattern
PMode[].Security.SendReceipt.ReplyTo
PMode[].Security.SendReceipt.Addressing.*
PMode[].Security.SendReceipt.AllowUnsignedRouting
PMode[].Security.SendReceipt.CopyElement
PMode[].ErrorHandling.Report.AsResponse
PMode[].ErrorHandling.Report.SenderErrorsTo
PMode[].ErrorHandling.Report.SenderErrorsTo.Addressing.*
PMode[].ErrorHandling.Report.ReceiverErrorsTo
PMode[].ErrorHandling.Report.ReceiverErrorsTo.Addressing.*
PMode[].ErrorHandling.Report.ReceiverErrors.ReplyPattern
PMode[].ErrorHandling.Report.ProcessErrorNotifyConsumer
PMode[].ErrorHandling.Report.ProcessErrorNotifyProducer
PMode[].ErrorHandling.Report.DeliveryFailuresNotifyProducer
PMode[].ErrorHandling.Report.MissingReceiptNotifyProducer
PMode[].Protocol.Security.*
PMode[].PayloadService.CompressionType
PMode[].ReceptionAwareness
PMode[].ReceptionAwareness.Retry
PMode[].ReceptionAwareness.Retry.Parameters.*
PMode[].ReceptionAwareness.DuplicateDetection
PMode[].ReceptionAwareness.DuplicateDetection.Compare
PMode[].ReceptionAwareness.DuplicateDetection.Parameters.*
PMode[].ReceptionAwareness.InOrder
PMode[].ReceptionAwareness.StrictAck
PMode[].ReceptionAwareness.AckAfterDelivery
PMode[].Reliability.Protocol
PMode[].Reliability.AtLeastOnce.Contract
PMode[].Reliability.AtLeastOnce.Contract.AckOnDelivery
PMode[].Reliability.AtLeastOnce.Contract.AckResponse
PMode[].Reliability.AtLeastOnce.Contract.AcksTo
PMode[].Reliability.AtLeastOnce.Contract.ReliablePull
PMode[].Reliability.AtLeastOnce.Contract.AcksTo.Addressing.*
PMode[].Reliability.AtLeastOnce.ReplyPattern
PMode[].Reliability.AtMostOnce.Contract
PMode[].Reliability.InOrder.Contract
PMode[].Reliability.Correlation
PMode[].Reliability.StartGroup
PMode[].Reliability.TerminateGroup
PMode[].Reliability.Retry.*
PMode[].Reliability.MaxIdle
PMode[].Pull.*
PMode[].ebXML.*
"""


def expand(table: str) -> frozenset[str]:
    """The dotted names that a table of names and `.*` patterns stands for."""
    names = {parameter.name for parameter in PARAMETERS}
    supported: set[str] = set()
    for line in table.split():
        below = line.removesuffix("*")
        found = {name for name in names if name.startswith(below)} if below != line else {line}
        if not found & names:
            raise ValueError(f"{line} is no P-Mode parameter")
        supported |= found
    return frozenset(supported)


SUPPORTED: Final = expand(_TABLE)
ALL: Final = frozenset(parameter.name for parameter in PARAMETERS)

_ADDRESSING: Final = ".Addressing."


def parameter_table(supported: frozenset[str] = SUPPORTED) -> str:
    """All parameters as Markdown; those of Addressing, which stands in many places, once."""
    places: dict[str, bool] = {}
    rows = []
    addressing = []
    for parameter in PARAMETERS:
        place, found, rest = parameter.name.partition(_ADDRESSING)
        if not found:
            rows.append(_row(parameter, parameter.name, parameter.path, supported))
            continue
        if not places:
            addressing_owner = place
        if place == addressing_owner:
            path = parameter.path.partition("addressing.")[2]
            somewhere = supported | {
                parameter.name for one in supported if one.endswith(_ADDRESSING + rest)
            }
            addressing.append(
                _row(parameter, f"…Addressing.{rest}", f"…addressing.{path}", somewhere)
            )
        places[place] = places.get(place, False) or parameter.name in supported
    working = " and ".join(f"`{place}`" for place, works in places.items() if works)
    return "\n".join(
        [
            _HEAD,
            *rows,
            "",
            "Addressing stands below "
            + ", ".join(f"`{place}`" for place in places)
            + ", each time with these parameters"
            + (f"; they work below {working}:" if working else ":"),
            "",
            _HEAD,
            *addressing,
            "",
        ]
    )


_HEAD: Final = "| parameter | YAML | values | works | meaning |\n| --- | --- | --- | --- | --- |"


def _row(parameter: Parameter, name: str, path: str, supported: frozenset[str]) -> str:
    works = "yes" if parameter.name in supported else "no"
    return f"| `{name}` | `{path}` | {parameter.values} | {works} | {parameter.meaning} |"
