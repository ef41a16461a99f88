"""Any eb:Messaging that may be sent, as hypothesis strategies: one for each value of `ebms3`.

What they draw is valid by the rules of the reader; `schema_valid=True` narrows it to what the
XSD allows too.
"""

import re
import string
from datetime import UTC

from hypothesis import strategies as st

from postroad.wire.ebms3 import (
    AgreementRef,
    CollaborationInfo,
    Description,
    Error,
    MessageInfo,
    Messaging,
    NonRepudiationInformation,
    PartInfo,
    Party,
    PartyId,
    Property,
    PullRequest,
    Receipt,
    Reference,
    Schema,
    Selection,
    Service,
    SignalMessage,
    Transform,
    UserMessage,
)
from postroad.wire.errors import ERRORS
from postroad.wire.names import EXC_C14N, NEXT_MSH, XENC

_BLANK = " \t\r\n"
_CONTROLS = "".join(chr(c) for c in range(32) if chr(c) not in "\t\n\r")
_characters = st.one_of(
    st.sampled_from("&<>\"'\t\n\r ]a:#%"),
    st.characters(exclude_categories=["Cs"], exclude_characters=_CONTROLS + "\ufffe\uffff"),
)

texts = st.text(_characters, min_size=1, max_size=20).map(lambda s: s.strip(_BLANK)).filter(bool)
"""Any text that XML can hold, without white space around it."""
tokens = texts.map(lambda s: re.sub("[ \t\r\n]+", " ", s))

_URI = string.ascii_letters + string.digits + "-._~:/?@!$&'()*+,;="
uris = st.builds(
    "{}:{}".format,
    st.sampled_from(("urn", "http", "x-a+b.c", "oid")),
    st.text(_URI, min_size=1, max_size=20),
)
plain_uris = st.builds("http://example.com/{}".format, st.text(string.ascii_letters, max_size=9))
_ID = string.ascii_letters + string.digits + ".!#$%&'*+-/=?^_`{|}~é"
message_ids = st.builds(
    "{}@{}".format, st.text(_ID, min_size=1, max_size=12), st.text(_ID, min_size=1, max_size=12)
)
xml_ids = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,12}", fullmatch=True)
times = st.datetimes(timezones=st.just(UTC))
langs = st.sampled_from(("en", "en-GB", "de", "x-klingon"))

descriptions = st.builds(Description, texts, langs)
_references_to_messages = st.none() | message_ids
message_infos = st.builds(MessageInfo, times, message_ids, _references_to_messages)


def _typed(kind, **more):
    """A value with a type, or a URI without one."""
    return st.builds(kind, texts, texts, **more) | st.builds(kind, uris, st.none(), **more)


party_ids = _typed(PartyId)
services = _typed(Service)
agreement_refs = _typed(AgreementRef, pmode=st.none() | texts)


def _distinct_types(ids):
    types = [one.type for one in ids if one.type is not None]
    return len(types) == len(set(types))


_id_lists = st.lists(party_ids, min_size=1, max_size=3).filter(_distinct_types).map(tuple)
parties = st.builds(Party, _id_lists, texts)
collaboration_infos = st.builds(
    CollaborationInfo, services, tokens, tokens | st.just(""), st.none() | agreement_refs
)


def _properties(schema_valid):
    values = texts if schema_valid else texts | st.just("")
    return st.builds(Property, texts, values, st.none() | texts)


def _lists(items, most=3):
    return st.lists(items, max_size=most).map(tuple)


properties = _properties(schema_valid=False)
schemas = st.builds(Schema, uris, st.none() | texts, st.none() | texts)
_CID = string.ascii_letters + string.digits + "-._~@!$&'()*+,;="
cids = st.builds("cid:{}".format, st.text(_CID, min_size=1, max_size=12))
hrefs = cids | st.builds("#{}".format, xml_ids) | plain_uris | st.none()


def part_infos(schema_valid=False):
    return st.builds(
        PartInfo,
        hrefs,
        _lists(_properties(schema_valid)),
        _lists(
            st.builds(Schema, plain_uris, st.none() | texts, st.none() | texts)
            if schema_valid
            else schemas,
            1 if schema_valid else 2,
        ),
        st.none() | descriptions,
    )


def user_messages(schema_valid=False):
    return st.builds(
        UserMessage,
        message_infos,
        parties,
        parties,
        collaboration_infos,
        _lists(_properties(schema_valid)),
        st.lists(part_infos(schema_valid), max_size=3, unique_by=lambda p: p.href).map(tuple),
        st.none() | (plain_uris if schema_valid else uris),
    )


_selected_parties = st.builds(Party, _id_lists, texts | st.just("")) | st.builds(
    Party, st.just(()), texts
)
selections = st.builds(
    Selection,
    ref_to_message_id=_references_to_messages,
    conversation_id=st.none() | tokens,
    agreement_ref=st.none() | agreement_refs,
    service=st.none() | services,
    action=st.none() | tokens,
    from_party=st.none() | _selected_parties,
    to_party=st.none() | _selected_parties,
    properties=_lists(properties),
).filter(lambda selection: selection != Selection())


def pull_requests(schema_valid=False):
    if schema_valid:
        return st.builds(PullRequest, st.none() | plain_uris, st.none())
    return st.builds(PullRequest, st.none() | uris, st.none() | selections)


transforms = st.builds(
    Transform,
    st.just(EXC_C14N) | uris,
    st.lists(xml_ids | st.just("#default"), max_size=3, unique=True).map(tuple),
)
references = st.builds(
    Reference,
    cids | st.builds("#{}".format, xml_ids) | st.just(""),
    _lists(transforms, 2),
    st.sampled_from((XENC + "sha256", XENC + "sha512")),
    st.binary(min_size=1, max_size=64),
)
non_repudiation_receipts = st.builds(
    Receipt,
    non_repudiation=st.builds(
        NonRepudiationInformation, st.lists(references, min_size=1, max_size=4).map(tuple)
    ),
)


def receipts(schema_valid=False):
    if schema_valid:
        return non_repudiation_receipts
    return non_repudiation_receipts | st.builds(Receipt, user_message=user_messages())


@st.composite
def errors(draw, ref_to_message_id=None):
    code = draw(st.sampled_from(sorted(ERRORS)) | st.just("EBMS:9999"))
    kind = ERRORS.get(code)
    ref = st.none() | (message_ids if ref_to_message_id is None else st.just(ref_to_message_id))
    return Error(
        error_code=code,
        severity=draw(st.sampled_from(("failure", "warning"))),
        category=draw(st.none() | st.just(kind.category.value) if kind else st.none() | tokens),
        origin=draw(st.none() | st.just(kind.origin) if kind else st.none() | tokens),
        short_description=draw(st.none() | tokens),
        ref_to_message_in_error=draw(ref),
        description=draw(st.none() | descriptions),
        error_detail=draw(st.none() | tokens),
    )


@st.composite
def signals(draw, schema_valid=False):
    info = draw(message_infos)
    kind = draw(st.sampled_from(("pull", "receipt", "error")))
    if kind == "pull":
        return SignalMessage(info, pull_request=draw(pull_requests(schema_valid)))
    if kind == "receipt":
        info = MessageInfo(info.timestamp, info.message_id, draw(message_ids))
        return SignalMessage(info, receipt=draw(receipts(schema_valid)))
    some = st.lists(errors(info.ref_to_message_id), min_size=1, max_size=3)
    return SignalMessage(info, errors=tuple(draw(some)))


def _sendable(units):
    return sum(isinstance(u, SignalMessage) and u.pull_request is not None for u in units) < 2


def messagings(schema_valid=False):
    """Bundles of all kinds of units in any order; most often of one unit."""
    unit = st.one_of(user_messages(schema_valid), signals(schema_valid))
    units = st.lists(
        unit, min_size=1, max_size=3, unique_by=lambda u: u.message_info.message_id
    ).filter(_sendable)
    return st.builds(
        Messaging,
        units.map(tuple),
        st.none() | xml_ids,
        st.sampled_from((None, NEXT_MSH)) | uris,
        st.booleans(),
    )
