"""All states of larger worlds: `python -m tests.model --messages 2 --losses 2`."""

import argparse
import sys
import time

from tests.model.search import Counterexample, explore, told
from tests.model.world import Budget
from tests.model.worlds import worlds


def main() -> int:
    options = _options()
    budget = Budget(*(getattr(options, name) for name in Budget._fields))
    states = moves = 0
    began = time.monotonic()
    for world in worlds(budget, options.retries, options.messages):
        try:
            found = explore(world)
        except Counterexample as wrong:
            print(wrong)
            return 1
        print(f"{found.states:10,} states  {told(world)}", flush=True)
        states += found.states
        moves += found.moves
    seconds = time.monotonic() - began
    print(f"{states:10,} states, {moves:,} moves, {seconds:.0f} s: everything holds")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--messages", type=int, default=1, help="how many")
    parser.add_argument("--retries", type=int, default=1, help="of each")
    usual = Budget(losses=1, crashes=1, rejections=1)
    for name, count in usual._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=count, help="at most")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
