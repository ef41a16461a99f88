"""P-Modes that are well but for one thing, and what is told of it."""

from postroad.agreement.breach import Level
from postroad.agreement.loading import Problem, load_pmodes

HEAD = "id: p\ninitiator: {party: urn:acme}\nresponder: {party: urn:globex}\n"
"""Three lines; what a test adds begins in line 4."""
PULLED = """id: p
initiator: {party: urn:acme, authorization: {username: u, password: p}}
responder: {party: urn:globex}
mep_binding: pull
legs:
  - security: {send_receipt: {reply_pattern: callback}}
"""
TWO_WAY = "mep: twoWay\nmep_binding: sync\n"
SIGNED = "x509: {sign: true, signature: {pins: a.pem}}"
EPR = "{address: icloud, epr: {routing_input: {business_info: {mpc: urn:m}}}}"
PULLS = HEAD.replace("urn:acme", "urn:acme, authorization: {username: u, password: p}")
"""The same, and it is said who may pull."""


def broken(text: str) -> list[Problem]:
    """All that is wrong with P-Modes."""
    return list(load_pmodes(text, "p.yaml", supported=None).problems)


def breach(text: str, level: Level = Level.ERROR) -> tuple[int, str]:
    """Line and sentence of the one thing that is wrong."""
    problems = broken(text)
    assert len(problems) == 1, [str(problem) for problem in problems]
    assert problems[0].level is level
    return problems[0].line, problems[0].message


def leg(text: str, head: str = HEAD) -> str:
    """A P-Mode of one leg, which begins in the line after `legs:`."""
    return head + "legs:\n  - " + text.replace("\n", "\n    ") + "\n"


def pulled(text: str) -> str:
    """A P-Mode of one leg that is pulled."""
    receipt = "\nsecurity: {send_receipt: {reply_pattern: callback}}"
    return leg(text + receipt, PULLS + "mep_binding: pull\n")
