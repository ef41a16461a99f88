"""An inspection for people: a tree in the terminal, made from the very facts that JSON shows."""

from collections.abc import Iterable
from typing import Any

from rich.text import Text
from rich.tree import Tree

Facts = dict[str, Any]

_GOOD, _BAD, _WEAK, _NAME, _FAINT = "green", "bold red", "yellow", "bold", "dim"


def inspection_tree(facts: Facts) -> Tree:
    """The tree of one message, or of an evidence."""
    tree = Tree(_headline(facts))
    if facts["kind"] == "evidence":
        _evidence(tree, facts)
    else:
        _message(tree, facts)
    return tree


def _message(tree: Tree, facts: Facts) -> None:
    """Units, payloads, signature, encryption, routing, problems."""
    for unit in facts["units"]:
        _unit(tree, unit)
    if facts["ebxml"]:
        _ebxml(tree, facts["ebxml"])
    _parts(tree, facts)
    if facts["kind"] != "unreadable":
        _signature(tree, facts["signature"])
    _encryption(tree, facts["encryption"])
    for name in ("timestamp", "addressing", "routing", "fragment", "reliability", "fault"):
        if facts.get(name):
            _pairs(tree.add(_styled(name, _NAME)), facts[name].items())
    for token in facts["username_tokens"]:
        _pairs(tree.add(_styled("username token", _NAME)), token.items())
    if facts["pmode"]:
        tree.add(_line("P-Mode", facts["pmode"]))
    _problems(tree, facts["errors"])


def _evidence(tree: Tree, facts: Facts) -> None:
    """What it says of itself, what is proven by whom, then message and signals one by one."""
    names = ("message_id", "side", "node", "state", "from", "to", "created_at", "made_at")
    _pairs(tree, ((name, facts[name]) for name in names))
    if facts["message"]["kind"] == "unreadable":
        _problems(tree, facts["errors"])
        return
    tree.add(_proof(facts))
    _message(tree.add(_headline({**facts["message"], "file": "message"})), facts["message"])
    for signal in _signals(facts):
        branch = tree.add(_headline(signal))
        if not signal["believed"]:
            branch.add(_styled("the node did not believe it when it came", _WEAK))
        if "worth" in signal:
            branch.add(_line("proves", signal["worth"], "" if signal["proves"] else _WEAK))
        _digests(branch, signal["digests"])
        _message(branch, signal)
    for one in facts["certificates"]:
        shown = tree.add(_line(one["file"], one["subject"]))
        _pairs(shown, ((name, one[name]) for name in ("issuer", "sha256")))
    said_below = [one for part in _signed_parts(facts) for one in part["errors"]]
    own = [one for one in facts["errors"] if not _is_among(one, said_below)]
    _problems(tree, own)


def _signed_parts(facts: Facts) -> list[Facts]:
    return [facts["message"], *_signals(facts)]


def _signals(facts: Facts) -> list[Facts]:
    return [*facts["receipts"], *facts.get("hops", ()), *facts["error_signals"]]


def _is_among(problem: Facts, others: list[Facts]) -> bool:
    return any((problem["code"], problem["detail"]) == (o["code"], o["detail"]) for o in others)


def _proof(facts: Facts) -> Text:
    """In one line: what an evidence is worth."""
    if not facts["holds"]:
        return Text.assemble(("proof: ", _FAINT), ("none, see what is wrong", _BAD))
    is_ebxml = "hops" in facts
    if not facts["signed"]:
        unsigned = "the message is not" if is_ebxml else "nothing is"
        return Text.assemble(("proof: ", _FAINT), (f"none: {unsigned} signed", _WEAK))
    acknowledged = is_ebxml or any("proves" in one for one in facts["receipts"])
    what = "acknowledgment" if acknowledged else "receipt"
    proven = sum(bool(one.get("proves", one["believed"])) for one in facts["receipts"])
    worth = f"signed message, {proven} signed {what}{'' if proven == 1 else 's'}  "
    trust = {
        True: ("all who signed are trusted", _GOOD),
        None: ("nobody said whom to trust: give --trust", _WEAK),
    }
    return Text.assemble(("proof: ", _FAINT), worth, trust[facts["trusted"]])


def _digests(branch: Tree, digests: list[Facts]) -> None:
    if not digests:
        return
    equal = sum(one["equal"] for one in digests)
    told = branch.add(_line("digests", f"{equal} of {len(digests)} equal to the message's"))
    for one in digests:
        if not one["equal"]:
            told.add(_styled(f"✘ {one['uri']}  sent {one['sent']}, received {one['received']}"))


def plain(value: object) -> str:
    """Text from a message, made harmless: no control characters reach the terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value))


def _styled(value: object, style: str = "") -> Text:
    return Text(plain(value), style=style)


def _line(name: str, value: object, style: str = "") -> Text:
    return Text.assemble((f"{plain(name)}: ", _FAINT), (plain(value), style))


def _headline(facts: Facts) -> Text:
    verdict = ("holds", _GOOD) if facts["holds"] else ("does not hold", _BAD)
    soap = f"  SOAP {facts['soap']}" if facts.get("soap") else ""
    version = f" {facts['ebxml']['version']}" if facts.get("ebxml") else ""
    kind = _named(facts["kind"]).replace("ebXML", f"ebXML{version}")
    return Text.assemble((plain(facts.get("file", "message")), _NAME), f"  {kind}{soap}  ", verdict)


def _named(kind: str) -> str:
    return kind.replace("_", " ").replace("ebxml", "ebXML")


def _pairs(branch: Tree, pairs: Iterable[tuple[str, object]]) -> None:
    for name, value in pairs:
        if value not in (None, "", [], {}):
            branch.add(_line(name.replace("_", " "), value))


def _unit(tree: Tree, unit: Facts) -> None:
    title = f"{_named(unit['kind'])}  {unit['message_id']}"
    branch = tree.add(_styled(title, _NAME))
    shown = ("ref_to_message_id", "timestamp")
    _pairs(branch, ((name, unit[name]) for name in shown))
    if unit["from"] is not None:
        for side in ("from", "to"):
            role = f"  ({unit[f'{side}_role']})" if unit[f"{side}_role"] else ""
            branch.add(_line(side, unit[side] + role))
        service = f"{unit['service_type']}::" if unit["service_type"] else ""
        branch.add(_line("service", service + unit["service"]))
        if unit["agreement"]:
            agreement = unit["agreement"]
            mode = f"  (P-Mode {agreement['pmode']})" if agreement["pmode"] else ""
            branch.add(_line("agreement", agreement["ref"] + mode))
    _pairs(branch, ((name, unit.get(name)) for name in ("action", "conversation_id", "mpc")))
    if unit["properties"]:
        _pairs(branch.add(_styled("properties", _NAME)), unit["properties"].items())
    for payload in unit.get("payloads", ()):
        _payload(branch, payload)
    if unit.get("selection"):
        _pairs(branch.add(_styled("selects", _NAME)), unit["selection"].items())
    _receipt(branch, unit.get("receipt"))
    for error in unit.get("errors", ()):
        told = error["detail"] or error["description"] or ""
        line = f"{error['code']} {error['short_description'] or ''} ({error['severity']})  {told}"
        branch.add(_styled(line, _WEAK))


_EBXML_PLAIN = (
    "time_to_live",
    "delivery_semantics",
    "message_order_semantics",
    "delivery_receipt_requested",
)


def _ebxml(tree: Tree, facts: Facts) -> None:
    """What only ebXML has: quality of service, the way it took, what it says of other messages."""
    branch = tree.add(_styled("ebXML", _NAME))
    _pairs(branch, ((name, facts[name]) for name in _EBXML_PLAIN))
    for name in ("duplicate_elimination", "sync_reply"):
        if facts[name]:
            branch.add(_styled(name.replace("_", " ")))
    if facts["sequence_number"]:
        branch.add(
            _line("sequence number", "{value}  ({status})".format(**facts["sequence_number"]))
        )
    for text in facts["descriptions"]:
        branch.add(_line("description", text))
    for asked in facts["ack_requested"]:
        signed = "signed" if asked["signed"] else "unsigned"
        branch.add(_line("acknowledgment requested", f"{signed}  {asked['actor'] or ''}".rstrip()))
    for number, trace in enumerate(facts["trace"], 1):
        way = f"{trace['sender_uri']}  →  {trace['receiver_uri']}  {trace['timestamp']}"
        link = f"  number {trace['sequence_number']}" if trace["sequence_number"] else ""
        branch.add(_line(f"hop {number}", way + link))
    if facts["via"]:
        _pairs(branch.add(_styled("via", _NAME)), facts["via"].items())
    for one in facts["manifest"]:
        _pairs(
            branch.add(_line("manifest", one["href"])),
            (("role", one["role"]), ("schemas", ", ".join(one["schemas"]))),
        )
    _ebxml_answer(branch, facts)


def _ebxml_answer(branch: Tree, facts: Facts) -> None:
    said = facts["acknowledgment"]
    if said:
        signed = "signed" if said["signed"] else "unsigned"
        shown = branch.add(_line("acknowledgment", f"{said['type']}, {signed}"))
        _pairs(
            shown,
            ((name, said[name]) for name in ("timestamp", "from", "ref_to_message_id", "actor")),
        )
        for one in said["references"]:
            told = f"{_short(one['digest_method'])} {one['digest']}"
            shown.add(_line(one["uri"] or "the whole document", told))
    if facts["error_list"]:
        shown = branch.add(_line("errors", facts["error_list"]["highest_severity"]))
        for one in facts["error_list"]["errors"]:
            line = shown.add(
                _styled(f"{one['code']} ({one['severity']})  {one['text']}".rstrip(), _WEAK)
            )
            _pairs(line, ((name, one[name]) for name in ("location", "min_retry_secs")))
    _pairs(branch, (("asks for the status of", facts["status_request"]),))
    if facts["status"]:
        shown = branch.add(_line("status", facts["status"]["message_status"]))
        _pairs(
            shown, ((name, facts["status"][name]) for name in ("ref_to_message_id", "timestamp"))
        )


def _receipt(branch: Tree, receipt: Facts | None) -> None:
    if receipt is None:
        return
    if not receipt["non_repudiation"]:
        branch.add(_line("receipt for", receipt["user_message"] or "nothing"))
        return
    proof = branch.add(_styled("non-repudiation of receipt", _NAME))
    for reference in receipt["references"]:
        proof.add(
            _line(reference["uri"], f"{_short(reference['digest_method'])} {reference['digest']}")
        )


def _payload(branch: Tree, payload: Facts) -> None:
    size = f"{payload['size']:,} bytes" if payload["size"] is not None else "not opened"
    if payload["href"] is None or payload["href"].startswith("#"):
        size += " in the Body"
    squeezed = ", was compressed" if payload["compressed"] else ""
    leaf = branch.add(
        Text.assemble(
            ("payload ", _NAME),
            plain(payload["href"] or "Body"),
            (f"  {plain(payload['content_type'] or '')}  {size}{squeezed}", _FAINT),
        )
    )
    _pairs(leaf, payload["properties"].items())
    if payload["unpacked"]:
        leaf.add(_line("GZIP file with", f"{payload['unpacked']['size']:,} bytes inside"))
    if payload["sha256"]:
        leaf.add(_line("sha256", payload["sha256"]))


def _parts(tree: Tree, facts: Facts) -> None:
    if not facts["parts"]:
        return
    branch = tree.add(_styled(f"MIME parts ({len(facts['parts'])})", _NAME))
    for part in facts["parts"]:
        marks = [name for name in ("signed", "encrypted") if part[name]]
        told = f"  {part['content_type']}  {part['size']:,} bytes  {' '.join(marks)}"
        branch.add(Text.assemble(plain(part["cid"] or "(no Content-ID)"), (plain(told), _FAINT)))


def _signature(tree: Tree, signature: Facts) -> None:
    if not signature["present"]:
        tree.add(_styled("not signed", _FAINT))
        return
    words = {True: ("valid", _GOOD), False: ("not valid", _BAD), None: ("not checked", _WEAK)}
    trust = {
        True: ("trusted", _GOOD),
        False: ("not trusted", _BAD),
        None: ("trust not judged: no --trust given", _WEAK),
    }
    branch = tree.add(
        Text.assemble(
            ("signature ", _NAME),
            words[signature["valid"]],
            f"  {_short(signature['algorithm'])}  ",
            trust[signature["trusted"]],
        )
    )
    certificate = signature["certificate"]
    if certificate:
        shown = branch.add(_line("signer", certificate["subject"]))
        _pairs(shown, ((n, certificate[n]) for n in ("issuer", "serial", "key", "sha256")))
        shown.add(_line("valid", f"{certificate['not_before']} to {certificate['not_after']}"))
    if signature["unsigned_routing"]:
        branch.add(_line("accepted unsigned", ", ".join(signature["unsigned_routing"])))
    if len(signature["chain"]) > 1:
        branch.add(_line("chain", "  →  ".join(signature["chain"])))
    for note in signature["trust_notes"]:
        branch.add(_line("note", note))
    for one in signature["revocation"]:
        style = {"good": _GOOD, "revoked": _BAD, "unknown": _WEAK}[one["status"]]
        word = {"good": "not revoked", "revoked": "revoked", "unknown": "revocation unknown"}
        told = plain(f"  {one['subject']}  ({one['detail']})")
        branch.add(Text.assemble((word[one["status"]], style), (told, _FAINT)))
    for reference in signature["references"]:
        marks = {True: ("✔ ", _GOOD), False: ("✘ ", _BAD), None: ("? ", _WEAK)}
        reason = f"  {reference['reason']}" if reference["reason"] else ""
        method = f"  {_short(reference['digest_method'])}"
        branch.add(
            Text.assemble(
                marks[reference["valid"]],
                plain(reference["uri"] or "the whole document"),
                (plain(method), _FAINT),
                plain(reason),
            )
        )


def _encryption(tree: Tree, encryption: Facts) -> None:
    if not encryption["present"]:
        return
    opened = ("opened", _GOOD) if encryption["decrypted"] else ("not opened", _WEAK)
    branch = tree.add(Text.assemble(("encryption ", _NAME), opened))
    branch.add(_line("algorithms", ", ".join(map(_short, encryption["algorithms"]))))
    for recipient in encryption["recipients"]:
        branch.add(_line("for", recipient))


def _problems(tree: Tree, problems: list[Facts]) -> None:
    if not problems:
        return
    branch = tree.add(_styled(f"what is wrong ({len(problems)})", _NAME))
    for problem in problems:
        style = _BAD if problem["severity"] == "failure" else _WEAK
        name = problem["short_description"]
        code = problem["code"] if name == problem["code"] else f"{problem['code']} {name}"
        told = branch.add(
            Text.assemble(
                (code, style),
                (f" ({problem['severity']})  ", _FAINT),
                plain(problem["detail"]),
            )
        )
        if problem["location"]:
            told.add(_line("at", problem["location"]))


def _short(uri: str | None) -> str:
    return plain((uri or "").rpartition("#")[2] or uri or "")
