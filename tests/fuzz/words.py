"""Words that readers of XML, MIME, HTTP and WS-Security stumble over, if they do at all."""

from typing import Final

from postroad.wire import names

_XML: Final = (
    b"<![CDATA[x]]>",
    b"<!--x-->",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"<?target data?>",
    b"&b;",
    b"&#x9b;",
    b"&#0;",
    b"&lt;",
    b"<a/>",
    b'<a xmlns="relative"/>',
    b' xmlns="relative"',
    b' xmlns:q="http://["',
    b' xmlns:eb="urn:other"',
    b' xmlns:eb="{urn:x}"',
    b' xml:id="_body"',
    b' Id="_messaging"',
    b' xsi:type="q:x"',
    b'<?xml version="1.1" encoding="EBCDIC"?>',
)
_MIME: Final = (
    b"\r\n",
    b"\r\n\r\n",
    b"--",
    b"\r\n--postroad-3f2a9c71d04e--\r\n",
    b"\r\n--postroad-3f2a9c71d04e\r\n",
    b"Content-ID: <a@b>\r\n",
    b"Content-Type: multipart/related; boundary=x\r\n",
    b"Content-Type: text/xml; charset=utf-7\r\n",
    b"Content-Transfer-Encoding: base64\r\n",
    b"Content-Transfer-Encoding: quoted-printable\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"POST http://[ HTTP/1.1\r\n",
    b"\r\nffffffffffffff\r\n",
    b"=?utf-8?b?eA==?=",
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
)
_VALUES: Final = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc2\x9b31m",
    b"\xe2\x80\xae",
    b"#",
    b"#_body",
    b"cid:",
    b"cid:order@buyer.example",
    b"cid:%00",
    b"../../x",
    b"http://[",
    b"-1",
    b"0",
    b"99999999999999999999999999",
    b"1e400",
    b"0001-01-01T00:00:00+14:00",
    b"2026-02-30T24:00:00Z",
    b"application/gzip",
    b"text/xml",
    b"AAAA",
    b"=",
    b"%",
)
_URIS: Final = tuple(
    value.encode()
    for name, value in sorted(vars(names).items())
    if name.isupper() and isinstance(value, str)
)

WORDS: Final = (*_XML, *_MIME, *_VALUES, *_URIS)


def dictionary() -> str:
    """The same as a dictionary file for libFuzzer."""
    shown = ("".join(f"\\x{byte:02x}" for byte in word) for word in WORDS if 0 < len(word) < 64)
    return "".join(f'"{word}"\n' for word in shown)
