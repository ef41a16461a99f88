"""The UsernameToken of WS-Security, through `postroad.security.username`."""

import base64
import hashlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from postroad.security.username import (
    PasswordType,
    UsernameToken,
    UsernameTokenRefused,
    check_username_token,
    read_username_token,
    write_username_token,
)
from postroad.wire.errors import EbmsError
from postroad.wire.names import USERNAME_PROFILE, WSSE, WSU
from postroad.wire.xml import canonical, is_xml_text, parse

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NONCE = bytes(range(16))
USER, PASSWORD = "hermes", "winged sandals"


def _written(**options: object) -> str:
    chosen = {"digest": True, "nonce": NONCE, "created": NOW, "id": "ut-1", **options}
    username, password = chosen.pop("username", USER), chosen.pop("password", PASSWORD)
    return write_username_token(username, password, **chosen)  # type: ignore[arg-type]


def _token(**options: object) -> UsernameToken:
    return read_username_token(parse(_written(**options).encode()))


def _element(content: str) -> etree._Element:
    start = f'<wsse:UsernameToken xmlns:wsse="{WSSE}" xmlns:wsu="{WSU}">'
    return parse(f"{start}{content}</wsse:UsernameToken>".encode())


def _new(nonce: bytes, until: datetime) -> bool:
    return False


def _check(token: UsernameToken, **options: object) -> None:
    chosen = {"username": USER, "password": PASSWORD, "now": NOW, "seen": _new, **options}
    check_username_token(token, **chosen)  # type: ignore[arg-type]


def _refusal(token: UsernameToken, **options: object) -> str:
    """The inward reason of a refusal; outward it always reads the same."""
    with pytest.raises(EbmsError) as caught:
        _check(token, **options)
    assert caught.value.code == "EBMS:0101"
    assert caught.value.detail == "the user name token does not hold"
    assert caught.value.location is None
    assert isinstance(caught.value.__cause__, UsernameTokenRefused)
    return str(caught.value.__cause__)


# writing and reading


def test_a_token_is_read_as_it_was_written() -> None:
    created = "2026-06-01T12:00:00.000Z"
    digest = hashlib.sha1(NONCE + created.encode() + PASSWORD.encode()).digest()
    assert _token() == UsernameToken(
        USER, base64.b64encode(digest).decode(), PasswordType.DIGEST, NONCE, created
    )


def test_a_token_in_the_clear_is_read_as_it_was_written() -> None:
    token = _token(digest=False)
    assert token.password == PASSWORD
    assert token.password_type is PasswordType.TEXT


@pytest.mark.parametrize("digest", [True, False])
@pytest.mark.parametrize("id", ["ut-1", None, 'quo"te&'])
def test_a_token_is_written_in_canonical_form(digest: bool, id: str | None) -> None:
    text = _written(digest=digest, id=id, username="a<b>&c\r")
    element = parse(text.encode())
    assert canonical(element) == text.encode()
    assert element.get(f"{{{WSU}}}Id") == id


def test_the_time_is_written_in_utc() -> None:
    created = NOW.astimezone(timezone(timedelta(hours=2)))
    assert _token(created=created).created == "2026-06-01T12:00:00.000Z"


@given(
    st.text(min_size=1).filter(lambda value: is_xml_text(value) and value.strip() != ""),
    st.text(min_size=1).filter(is_xml_text),
)
def test_any_user_and_password_come_through(username: str, password: str) -> None:
    _check(_token(username=username, password=password), username=username, password=password)


def test_a_text_password_with_spaces_around_it_comes_through() -> None:
    _check(_token(digest=False, password=" a b "), password=" a b ", allow_text=True)


@pytest.mark.parametrize("part", ["username", "password"])
def test_what_xml_cannot_carry_is_not_written(part: str) -> None:
    with pytest.raises(ValueError, match="XML cannot carry"):
        _written(**{part: "a\0b"})


def test_the_password_is_not_shown() -> None:
    assert PASSWORD not in repr(_token(digest=False))


def test_the_digest_is_the_one_of_the_profile() -> None:
    """The token as another stack writes it: nonce decoded, Created and password as they are."""
    nonce, created = "WScqanjCEAC4mQoBE07sAQ==", "2003-07-16T01:24:32Z"
    raw = base64.b64decode(nonce) + created.encode() + b"wss4j"
    digest = base64.b64encode(hashlib.sha1(raw).digest()).decode()
    token = read_username_token(
        _element(
            f'<wsse:Username>wernerd</wsse:Username><wsse:Password Type="{USERNAME_PROFILE}'
            f'#PasswordDigest">{digest}</wsse:Password>\n<wsse:Nonce>{nonce}</wsse:Nonce>'
            f"<wsu:Created>{created}</wsu:Created>"
        )
    )
    now = datetime(2003, 7, 16, 1, 25, tzinfo=UTC)
    _check(token, username="wernerd", password="wss4j", now=now)


NAME = "<wsse:Username>a</wsse:Username>"


def test_a_password_without_type_is_in_the_clear() -> None:
    token = read_username_token(_element(NAME + "<wsse:Password>b</wsse:Password>"))
    assert token == UsernameToken("a", "b", PasswordType.TEXT, None, None)


def test_a_comment_does_not_cut_a_value() -> None:
    token = read_username_token(_element("<wsse:Username>ad<!-- -->min</wsse:Username>"))
    assert token.username == "admin"


def test_unknown_elements_are_passed_over() -> None:
    assert read_username_token(_element(NAME + "<x/>")).username == "a"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "no user name"),
        ("<wsse:Username/>", "1 to 4096"),
        (f"<wsse:Username>{'x' * 5000}</wsse:Username>", "1 to 4096"),
        ("<wsse:Username><b/></wsse:Username>", "text is expected"),
        (NAME + NAME, "more than once"),
        (NAME + "<wsse:Password>b</wsse:Password>" * 2, "more than once"),
        (NAME + "<wsse:Nonce>AA==</wsse:Nonce>" * 2, "more than once"),
        (NAME + "<wsu:Created>2026-06-01T12:00:00Z</wsu:Created>" * 2, "more than once"),
        (NAME + '<wsse:Password Type="urn:x">b</wsse:Password>', "neither PasswordText nor"),
        (NAME + '<wsse:Nonce EncodingType="urn:hex">AA==</wsse:Nonce>', "not Base64Binary"),
        (NAME + "<wsse:Nonce>?</wsse:Nonce>", "not base64"),
        (NAME + "<wsse:Nonce>AAA</wsse:Nonce>", "not base64"),
        (NAME + "<wsse:Nonce/>", "1 to 4096"),
        (NAME + f"<wsse:Nonce>{'AAAA' * 100}</wsse:Nonce>", "1 to 256 bytes"),
        (NAME + "<wsu:Created>yesterday</wsu:Created>", "no date and time"),
        (NAME + "<wsu:Created>2026-13-01T12:00:00Z</wsu:Created>", "no date and time"),
        (NAME + "<wsu:Created>2026-06-01</wsu:Created>", "no date and time"),
        (NAME + "<wsu:Created>0001-01-01T00:00:00+14:00</wsu:Created>", "no date and time"),
    ],
)
def test_a_token_of_bad_structure_is_refused(content: str, sentence: str) -> None:
    with pytest.raises(EbmsError, match=sentence) as caught:
        read_username_token(_element(content))
    assert caught.value.code == "EBMS:0101"
    assert (caught.value.location or "").startswith("wsse:UsernameToken")


def test_another_element_is_no_token() -> None:
    with pytest.raises(EbmsError) as caught:
        read_username_token(parse(b"<x/>"))
    assert caught.value.detail == "this is no wsse:UsernameToken"


# checking


def test_a_good_token_holds() -> None:
    _check(_token())


@pytest.mark.parametrize(
    "agreed",
    [
        {"username": "Hermes"},
        {"username": ""},
        {"password": "winged Sandals"},
        {"password": ""},
        {"username": "x", "password": "y"},
    ],
)
@pytest.mark.parametrize("digest", [True, False])
def test_a_wrong_user_or_password_is_refused_without_saying_which(
    digest: bool, agreed: dict[str, str]
) -> None:
    reason = _refusal(_token(digest=digest), allow_text=True, **agreed)
    assert reason == "user name or password are wrong"


def test_a_password_in_the_clear_is_refused_unless_asked_for() -> None:
    token = _token(digest=False)
    assert "in the clear" in _refusal(token)
    _check(token, allow_text=True)


def test_a_digest_sent_as_text_is_no_password() -> None:
    digest = _token()
    as_text = UsernameToken(USER, digest.password, PasswordType.TEXT, NONCE, digest.created)
    assert "wrong" in _refusal(as_text, allow_text=True)


def test_a_token_without_password_is_refused() -> None:
    token = read_username_token(_element(f"<wsse:Username>{USER}</wsse:Username>"))
    assert "no password" in _refusal(token, allow_text=True)
    assert "no password" in _refusal(token, allow_text=True, password="")


def _digest_token(nonce: bytes | None, created: str | None) -> UsernameToken:
    raw = (nonce or b"") + (created or "").encode() + PASSWORD.encode()
    digest = base64.b64encode(hashlib.sha1(raw).digest()).decode()
    return UsernameToken(USER, digest, PasswordType.DIGEST, nonce, created)


@pytest.mark.parametrize(
    ("nonce", "created"), [(None, "2026-06-01T12:00:00Z"), (NONCE, None), (None, None)]
)
def test_a_digest_needs_nonce_and_created(nonce: bytes | None, created: str | None) -> None:
    assert "needs a nonce and the time" in _refusal(_digest_token(nonce, created))


@pytest.mark.parametrize(
    "created",
    [
        "2026-06-01T12:00:00Z",
        "2026-06-01T12:00:00",
        "2026-06-01T14:00:00.123456789+02:00",
        "2026-06-01T07:00:00-05:00",
    ],
)
def test_created_is_taken_as_it_is_written(created: str) -> None:
    _check(_digest_token(NONCE, created), skew=timedelta(seconds=1))


MINUTE = timedelta(minutes=1)


def test_a_token_is_fresh_for_its_age_and_the_skew() -> None:
    _check(_token(), now=NOW + 6 * MINUTE, max_age=5 * MINUTE, skew=MINUTE)
    late = NOW + 6 * MINUTE + timedelta(seconds=1)
    assert "too long ago" in _refusal(_token(), now=late, max_age=5 * MINUTE, skew=MINUTE)


def test_a_token_of_the_future_is_refused_beyond_the_skew() -> None:
    _check(_token(), now=NOW - MINUTE, skew=MINUTE)
    early = NOW - MINUTE - timedelta(seconds=1)
    assert "in the future" in _refusal(_token(), now=early, skew=MINUTE)


def test_a_text_token_that_tells_its_time_must_be_fresh_too() -> None:
    token = _token(digest=False)
    assert "too long ago" in _refusal(token, allow_text=True, now=NOW + 60 * MINUTE)


class Nonces:
    """Who remembers the nonces that came, as the store does for a node."""

    def __init__(self) -> None:
        self.nonces: set[bytes] = set()

    def seen(self, nonce: bytes, _: datetime) -> bool:
        known = nonce in self.nonces
        self.nonces.add(nonce)
        return known


def test_a_replayed_token_is_refused() -> None:
    known = Nonces()
    _check(_token(), seen=known.seen)
    later = NOW + MINUTE
    assert "used before" in _refusal(_token(), now=later, seen=known.seen)
    _check(_token(nonce=b"another"), now=later, seen=known.seen)


def test_a_replayed_text_token_is_refused_where_it_has_a_nonce() -> None:
    known = Nonces()
    token = _token(digest=False)
    _check(token, allow_text=True, seen=known.seen)
    assert "used before" in _refusal(token, allow_text=True, seen=known.seen)


def test_only_a_right_password_uses_up_a_nonce() -> None:
    known = Nonces()
    _refusal(_token(password="wrong"), seen=known.seen)
    _refusal(_token(), now=NOW + 60 * MINUTE, seen=known.seen)
    assert not known.nonces
    _check(_token(), seen=known.seen)


def test_a_nonce_is_remembered_as_long_as_its_token_is_fresh() -> None:
    asked: list[tuple[bytes, datetime]] = []

    def seen(nonce: bytes, until: datetime) -> bool:
        asked.append((nonce, until))
        return False

    _check(_token(), now=NOW + MINUTE, max_age=5 * MINUTE, skew=2 * MINUTE, seen=seen)
    assert asked == [(NONCE, NOW + 7 * MINUTE)]
