"""How a node is: what it holds, what an operator should see to, and whether it takes messages."""

from collections.abc import Iterable, Iterator
from typing import Final

from postroad.node.base.context import WEBHOOK, Context
from postroad.node.service import Health, NotInForce
from postroad.node.settings.certificates import certificate_problems, door_certificates, in_order
from postroad.node.settings.difference import FileDifference
from postroad.node.settings.keyring import TlsIdentity
from postroad.node.settings.reloading import Watched
from postroad.node.steps.notifying import webhook_problem
from postroad.node.upkeep import disk_problem, stranded
from postroad.reliability.breaker import Gate
from postroad.store.interface import StoreError
from postroad.store.records import Partner

Doors = Watched[tuple[TlsIdentity | None, ...]]
"""The TLS identities of the listeners, as they are in force."""
_DOWN: Final = (Gate.PAUSED, Gate.PROBING)


class NodeHealth:
    """Asks everything that tells how a node is."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._difference = FileDifference(context.config)
        self.doors: Doors | None = None
        """None: nothing listens with TLS."""

    async def ask(self, partners: Iterable[Partner]) -> Health:
        """How the node is; `partners` are those with whom not all is well.

        Only a store that does not work makes the node not ready: it can take nothing over.

        All else is a problem that the node lives with. Whoever asks for the node's health reads the
        problems, so neither partners nor the contents of files are named in them.
        """
        context, store = self._context, self._context.store
        config, in_force, now = context.config, context.in_force, context.clock()
        problems: list[str] = []
        try:
            await store.check()
        except StoreError as error:
            problems.append(str(error))
        ready = not problems
        figures, hook = await store.look(lambda reader: (reader.figures(), reader.partner(WEBHOOK)))
        problems += (*in_force.standing(now), *stranded(in_force, figures).values())
        paused = None
        if config.webhook is not None:
            problem = webhook_problem(config.webhook, hook, figures.work.get("notify", 0))
            paused = problem is not None
            problems += [problem] if problem is not None else []
        free = store.free()
        if (problem := disk_problem(config, free)) is not None:
            problems.append(problem)
        certificates = in_force.certificates()
        if self.doors is not None:
            shown = door_certificates(config, self.doors.current)
            certificates = in_order((*certificates, *shown))
        problems += certificate_problems(certificates, now)
        problems += partner_problems(partners)
        changed, doors = self._difference.found(), list(self._doors_not_in_force())
        if changed or doors:
            problems.append(
                "settings or certificates on disk are not in force; see which with: postroad status"
            )
        return Health(
            ready,
            tuple(problems),
            figures,
            paused,
            free,
            store.reserved(),
            certificates,
            (*changed, *doors, *in_force.not_in_force()),
            in_force.partner_of,
            now,
        )

    def _doors_not_in_force(self) -> Iterator[NotInForce]:
        to_do = "correct it: the old stays in force until then"
        for problem in self.doors.problems if self.doors is not None else ():
            yield NotInForce("TLS certificates", problem, to_do)


def partner_problems(partners: Iterable[Partner]) -> Iterator[str]:
    """That partners are not served: a sentence for those that are down, one for the suspended."""
    gates = [one.gate for one in partners]
    down = sum(gate in _DOWN for gate in gates)
    if down:
        yield f"paused because they cannot be reached: {_many(down)}; see: postroad partners"
    suspended = gates.count(Gate.SUSPENDED)
    if suspended:
        yield f"suspended until you resume them: {_many(suspended)}; see: postroad partners"


def _many(count: int) -> str:
    return f"{count} partner{'' if count == 1 else 's'}"
