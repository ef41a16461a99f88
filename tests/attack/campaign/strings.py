"""Hostile text in what people and tools are shown: no control character, no markup, no failure."""

import functools
import html
import json
import os
import pty
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Final

import httpx

from postroad.api.client import ApiError
from postroad.wire.names import DEFAULT_MPC, WSSE
from tests.attack.campaign import forgeries as forge
from tests.attack.campaign import mail, probes
from tests.attack.campaign.gates import Gates, Reply, client, gated, new_id
from tests.attack.campaign.model import AttackClass, Breach, Case
from tests.attack.campaign.target import Target, head
from tests.e2e.nodes import COMMAND, ENVIRONMENT
from tests.fuzz.stateful_nodes import Sent

STRINGS: Final = {
    "C1 control sequence": "a\x9b2J\x9d52;c;eA==\x9cb",
    "bidi override": "a\u202eb\u2066c\u200fd",
    "lines": "a&#10;{&quot;level&quot;: &quot;error&quot;}&#13;b",
    "rich markup": "[red]a[/red][link=http://x.example]b[/link][/nonsense]",
    "HTML": "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=x onerror=y&gt;",
    "formula": "=cmd|' /C calc'!A1",
    "path": "../../../../tmp/campaign",
    "JSON": "&quot;}],&quot;a&quot;:[{",
    "label": 'a"} 1\\n# HELP b',
    "long": "y" * 20_000,
    "spaces": "  a  b\u2028\u00a0 ",
    "nothing": "",
}
_ALL: Final = "".join(
    STRINGS[one]
    for one in ("C1 control sequence", "rich markup", "HTML", "bidi override", "formula")
)
_FORBIDDEN: Final = ("&#0;", "&#27;[2J", "&#xD800;", "&#xFFFF;")
_FIELDS: Final = (
    ("MessageId", r"(<eb:MessageId>)[^<]*"),
    ("RefToMessageId", r"(</eb:MessageId>)"),
    ("From", r"(<eb:From><eb:PartyId>)[^<]*"),
    ("role", r"(<eb:Role>)[^<]*"),
    ("agreement", r"(<eb:AgreementRef>)[^<]*"),
    ("service", r"(<eb:Service>)[^<]*"),
    ("action", r"(<eb:Action>)[^<]*"),
    ("conversation", r"(<eb:ConversationId>)[^<]*"),
    ("property", r'(<eb:Property name="MimeType">)[^<]*'),
    ("property name", r'(<eb:Property name=")[^"]*'),
    ("part", r'(<eb:PartInfo href="cid:)[^"]*'),
)
_SGR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CONTROLS: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_METRIC: Final = re.compile(
    r'[a-zA-Z_:][\w:]*(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? [-+0-9.eE]+|(\+Inf|NaN)'
)


def _cases(target: Target) -> Iterator[Case]:
    with gated(target, "text", ["plain", "signed"]) as gates:
        for field, pattern in _FIELDS:
            yield Case(f"in {field}", functools.partial(_field, field, pattern))
        yield Case("that XML forbids", _forbidden)
        yield Case("in HTTP headers", _http_headers)
        yield Case("in MIME headers", _mime_headers)
        yield Case("in signals", _in_signals)
        yield Case("in mail headers", _mail_headers)
        yield Case("in channels", _channels)
        yield Case("in user names", _user_names)
        failed: list[str] = []
        for name, text in {**STRINGS, "all": _ALL}.items():
            yield Case(
                f"{name} in a partner's error", functools.partial(_error, gates, text, failed)
            )
            yield Case(
                f"{name} in a partner's fault", functools.partial(_fault, gates, text, failed)
            )
        for command in ("status", "trace"):
            yield Case(
                f"{command} of refused messages",
                lambda it, command=command: _of_last(failed, command, it),
            )
        for node in ("buyer", "seller"):
            for words in (
                ("messages", "--limit", "1000"),
                ("inbox", "list"),
                ("inbox", "notices"),
                ("partners",),
            ):
                yield Case(f"{node}: {' '.join(words)}", functools.partial(_shown, node, words))
            yield Case(f"{node}: each message", functools.partial(_each, node))
            yield Case(f"{node}: metrics", functools.partial(_metrics, node))
            yield Case(f"{node}: log", functools.partial(_log, node))
        yield Case("evidence", functools.partial(_evidence, gates))
        yield Case("journal, pipeline and report", _pipeline)


def _plain(target: Target) -> Sent:
    return target.recorded("plain")[0]


def _field(field: str, pattern: str, target: Target) -> None:
    request = _plain(target)
    for text in STRINGS.values():
        body = request.body.decode()
        for old in re.findall(r"<eb:MessageId>([^<]+)<", body):
            body = body.replace(old, new_id("text"))
        value = text.replace('"', "&quot;")
        if field == "RefToMessageId":
            value = f"<eb:RefToMessageId>{value}</eb:RefToMessageId>"
        changed = re.sub(pattern, lambda found, it=value: found.group(1) + it, body, count=1)
        if changed == body and text:
            raise Breach(f"{field} is not in the message")
        answer = target.post(Sent("seller", request.headers, changed.encode()))
        if answer.status >= 500 and not answer.codes:
            raise Breach(f"{text[:50]!r} in {field} got {answer.status}: {answer.body[-400:]!r}")


def _forbidden(target: Target) -> None:
    request = _plain(target)
    for text in _FORBIDDEN:
        body = re.sub(rb"(<eb:ConversationId>)[^<]*", rb"\g<1>" + text.encode(), request.body)
        answer = target.post(Sent("seller", request.headers, body))
        if not answer.codes or b":Receipt>" in answer.body:
            raise Breach(f"{text} was taken: {answer.status}")


def _http_headers(target: Target) -> None:
    request = _plain(target)
    for value in ("\x1b[2J\x1b]52;c;eA==\x07", "[red]x[/red]", "\x9b2J", "a\tb", "y" * 4000):
        body = request.body.replace(b"eb:MessageId>", b"eb:MessageId>x", 1)
        sent = Sent("seller", (*request.headers, ("User-Agent", value), ("X-A", value)), body)
        target.exchange(head(sent) + body)


def _mime_headers(target: Target) -> None:
    """Names of parts and files, with real control characters; and by percent signs."""
    request = _plain(target)
    [cid] = re.findall(rb'href="cid:([^"]+)"', request.body)
    for raw in (b"\x1b]52;c;eA==\x07", b"..%2f..%2fx", b"%1b%5b2J", b"[red]", b"a\rb", b"\x9b2J"):
        body = request.body
        for old in re.findall(rb"<eb:MessageId>([^<]+)<", body):
            body = body.replace(old, new_id("text").encode())
        named = (
            b'Content-Disposition: attachment; filename="' + raw + b"\"; filename*=utf-8''%1b%5d"
        )
        changed = body.replace(
            b"Content-ID: <" + cid + b">", b"Content-ID: <" + cid + b">\r\n" + named
        )
        target.post(Sent("seller", request.headers, changed))
        if b"%" in raw:
            renamed = body.replace(b"cid:" + cid, b"cid:" + raw + b"@x").replace(
                b"<" + cid + b">", b"<" + raw + b"@x>"
            )
            target.post(Sent("seller", request.headers, renamed))


def _in_signals(target: Target) -> None:
    """Errors of strangers, about messages and about nothing."""
    own = target.honest("signed")
    for text in STRINGS.values():
        quoted = text.replace('"', "&quot;")
        for ref in (quoted, own):
            units = forge.signal(forge.error(ref=ref, text=text), ref)
            target.post(forge.request("buyer", forge.soap12([forge.messaging(units)])))
        errors = forge.ebxml_errors("2.0", "urn:example:agreed", own, text=text)
        target.post(forge.request("buyer", errors))
    found = client(target, "buyer").status(own)
    if found.state != "acknowledged":
        raise Breach(f"an error of a stranger made {own} {found.state}")


def _raw(text: str) -> str:
    """Return a text as it is, not as XML writes it."""
    return html.unescape(text).replace("\r", " ").replace("\n", " ")


def _mail_headers(target: Target) -> None:
    """Sender, subject, ids and names of files of a mail that carries a message."""
    for text in (*map(_raw, STRINGS.values()), "\x1b[2J\x1b]52;c;eA==\x07", "=?utf-8?q?=1b[2J?="):
        headers = [f"{name}: {text}" for name in ("Subject", "X-Mailer", "Message-ID", "Received")]
        headers.append(f'Content-Disposition: attachment; filename="{text}"')
        [request, *_] = target.recorded("ebxml-2.0", b"<eb:Manifest")
        content = mail.as_mail(probes.renamed(request, probes.new_id("text")), *headers)
        with mail.Talk(target) as talk:
            talk.expect(talk.say("EHLO attacker.example"), 250)
            sender = talk.say(f"MAIL FROM:<{text[:100]}@attacker.example>")
            if sender != 250:
                talk.expect(sender, 500, 501, 553, 555)
                talk.expect(talk.say("MAIL FROM:<a@attacker.example>"), 250)
            talk.expect(talk.say(f"RCPT TO:<{mail.RECIPIENT}>"), 250)
            talk.expect(talk.say("DATA"), 354)
            talk.write(content + b"\r\n.\r\n")
            # A mail that is no message at all gets a 5xx; neither may end the connection.
            talk.expect(talk.hear(), 250, 500, 550, 552, 554)


def _channels(target: Target) -> None:
    """Names of channels in pull requests and in messages."""
    request = _plain(target)
    for text in STRINGS.values():
        value = text.replace('"', "&quot;")
        pull = forge.signal(f'<eb:PullRequest mpc="{value}"></eb:PullRequest>')
        answer = target.post(forge.request("buyer", forge.soap12([forge.messaging(pull)])))
        if b"UserMessage" in answer.body or not answer.codes:
            raise Breach(f"a pull from {text[:50]!r} got {answer.status} {answer.codes}")
        body = request.body.decode()
        for old in re.findall(r"<eb:MessageId>([^<]+)<", body):
            body = body.replace(old, new_id("text"))
        changed = re.sub(
            r"<eb:UserMessage[^>]*>", lambda _, it=value: f'<eb:UserMessage mpc="{it}">', body
        )
        answer = target.post(Sent("seller", request.headers, changed.encode()))
        if answer.status >= 500 and not answer.codes:
            raise Breach(f"{text[:50]!r} as a channel got {answer.status}: {answer.body[-400:]!r}")


def _user_names(target: Target) -> None:
    """User names and passwords of those who pull."""
    for text in STRINGS.values():
        token = (
            f'<wsse:Security xmlns:wsse="{WSSE}"><wsse:UsernameToken><wsse:Username>{text}'
            f"</wsse:Username><wsse:Password>{text}</wsse:Password></wsse:UsernameToken>"
            "</wsse:Security>"
        )
        for mpc in ("", f' mpc="{DEFAULT_MPC}"'):
            pull = forge.messaging(forge.signal(f"<eb:PullRequest{mpc}></eb:PullRequest>"))
            body = forge.soap12([pull])
            start = body.index(b"<eb:Messaging")
            signed = body[:start] + token.encode() + body[start:]
            answer = target.post(forge.request("buyer", signed))
            if b"UserMessage" in answer.body or not answer.codes:
                raise Breach(f"the user {text[:50]!r} got {answer.status} {answer.codes}")


def _of_last(failed: list[str], command: str, target: Target) -> None:
    error, fault = failed[-2:]
    _shown("buyer", (command, error if command == "status" else fault), target)


def _error(gates: Gates, text: str, failed: list[str], _: Target) -> None:
    said = functools.partial(forge.error, "EBMS:0004", "failure", text=text)
    _failed(
        gates,
        lambda ref: forge.soap12([forge.messaging(forge.signal(said(ref=ref), ref))]),
        failed,
    )


def _fault(gates: Gates, text: str, failed: list[str], _: Target) -> None:
    _failed(gates, lambda _: forge.soap12([], forge.fault12("Sender", text=text)), failed)


def _failed(gates: Gates, answer: Callable[[str], bytes], failed: list[str]) -> None:
    """A partner refuses a message with that text; status, trace and notices tell of it."""
    message_id = new_id("text")
    gates.seller.reply = lambda body: (
        Reply(400, answer(message_id)) if message_id.encode() in body else None
    )
    gates.send("plain", message_id)
    found = client(gates.target, "buyer").wait(message_id, 30)
    gates.open()
    gates.target.sent.pop(message_id)
    if found.state != "failed":
        raise Breach(f"{message_id} is {found.state}: {found.detail}")
    failed.append(message_id)


def run_in_terminal(*words: str) -> tuple[int, str]:
    """Run a command in a terminal of its own; its exit code and all that it wrote."""
    main, other = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT}
    environment |= {"TERM": "xterm-256color", "COLUMNS": "200", "FORCE_COLOR": "1"}
    process = subprocess.Popen(
        [COMMAND, *words], stdin=other, stdout=other, stderr=other, env=environment
    )
    os.close(other)
    written = b""
    try:
        while piece := os.read(main, 65536):
            written += piece
    except OSError:
        pass  # The end of a terminal.
    finally:
        os.close(main)
    return process.wait(60), written.decode("utf-8", "replace")


def _shown(node: str, words: tuple[str, ...], target: Target) -> None:
    config = str(target.node(node).config)
    code, written = run_in_terminal(*words, "-c", config)
    if code != 0 or "Traceback" in written:
        raise Breach(f"{' '.join(words)} ended with {code}: {written[-1500:]}")
    found = _CONTROLS.search(_SGR.sub("", written))
    if found is not None:
        around = written[max(0, found.start() - 60) : found.end() + 60]
        raise Breach(f"{' '.join(words)} wrote {found.group()!r} to the terminal: {around!r}")
    told = subprocess.run(
        [COMMAND, *words, "--json", "-c", config], capture_output=True, check=False, timeout=60
    )
    if told.returncode != 0:
        raise Breach(f"{' '.join(words)} --json ended with {told.returncode}: {told.stderr!r}")
    try:
        json.loads(told.stdout)
    except ValueError:
        for line in told.stdout.splitlines():
            json.loads(line)


def _each(node: str, target: Target) -> None:
    """REST gives each message, its events and signals; a few are shown by commands as well."""
    asked = client(target, node)
    for one in asked.messages(limit=200):
        try:
            asked.events(one.message_id)
        except ApiError as error:
            is_line = any(character < " " for character in one.message_id)
            if error.status not in (404, 409) and not (is_line and one.state == "rejected"):
                raise Breach(f"events of {one.message_id!r}: {error}") from None
    hostile = [one for one in asked.messages(limit=200) if _is_hostile(one.conversation_id)]
    for one in hostile[:1]:
        if one.side == "receiving" and one.message_id.strip():
            _shown(node, ("status", one.message_id), target)


def _is_hostile(text: str | None) -> bool:
    return text is not None and ("[red]" in text or "\x9b" in text or "script" in text)


def _metrics(node: str, target: Target) -> None:
    served = target.node(node)
    token = (served.folder / "keys" / "api.token").read_text().strip()
    url = f"{served.serving.api_url}/metrics"
    answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=30)
    for line in answer.text.splitlines():
        if line and not line.startswith("#") and not _METRIC.fullmatch(line):
            raise Breach(f"this is no metric: {line[:300]!r}")


def _log(node: str, target: Target) -> None:
    data = (target.node(node).folder / "log").read_bytes()
    for line in data[: data.rfind(b"\n")].split(b"\n"):
        try:
            told = json.loads(line)
        except ValueError:
            raise Breach(f"a line of the log is no JSON: {line[:300]!r}") from None
        if not {"at", "level", "event"} <= told.keys():
            raise Breach(f"a line of the log is not of the node: {line[:300]!r}")
        if _CONTROLS.search(line.decode("utf-8", "replace")):
            raise Breach(f"a control character in the log: {line[:300]!r}")


def _evidence(gates: Gates, target: Target) -> None:
    """An evidence of a message whose names are hostile: safe names inside, and it holds."""
    buyer = client(target, "buyer")
    text = "[red]../../x=1[/red]"
    sent = buyer.send(
        pmode=gates.pmode("signed"), payloads=[b"x"], conversation_id=text, properties={text: text}
    )
    target.sent[sent.message_id] = gates.pmode("signed")
    gates.acknowledged(sent.message_id)
    data = buyer.evidence(sent.message_id)
    for name in zipfile.ZipFile(BytesIO(data)).namelist():
        if ".." in name or name.startswith("/") or _CONTROLS.search(name) or "[" in name:
            raise Breach(f"a file in the evidence is called {name!r}")
    path = target.folder / "evidence.zip"
    path.write_bytes(data)
    code, written = run_in_terminal(
        "inspect", str(path), "--trust", str(target.node("buyer").folder / "keys/authority.pem")
    )
    if "Traceback" in written or _CONTROLS.search(_SGR.sub("", written)) or code not in (0, 1):
        raise Breach(f"inspect of the evidence: {code} {written[-800:]!r}")


class _Page(HTMLParser):
    """Notes what a browser would run or load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img" and ("onerror", "y") in attrs:
            self.found.append(tag)
        self.found += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and "alert(1)" in data:
            self.found.append(data[:100])


def _pipeline(target: Target) -> None:
    lake, report = target.folder / "lake", target.folder / "report.html"
    journals = []
    for node in target.nodes:
        _run("journal", "ship", "-c", str(node.config))
        journals += ["--journal", str(node.folder / "journal")]
    _run("pipeline", "run", *journals, "--lake", str(lake))
    _run("pipeline", "report", "--lake", str(lake), "--out", str(report))
    page = _Page()
    page.feed(Path(report).read_text(encoding="utf-8"))
    if page.found:
        raise Breach(f"markup of a stranger in the report: {page.found[:3]}")


def _run(*words: str) -> None:
    done = subprocess.run([COMMAND, *words], capture_output=True, check=False, timeout=300)
    if done.returncode != 0 or b"Traceback" in done.stderr:
        raise Breach(f"{' '.join(words[:2])} ended with {done.returncode}: {done.stderr[-800:]!r}")


CLASSES: Final = (AttackClass("hostile strings", _cases),)
