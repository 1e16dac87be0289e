"""Mutation testing: ``python -m tests.mutation [TARGET ...]``; the targets are in targets.py."""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.mutation import mutants
from tests.mutation.explained import EXPLAINED
from tests.mutation.ground import Ground, open_ground
from tests.mutation.mutants import Mutant
from tests.mutation.targets import TARGETS, Target

from pgflow_migrate import resources

SEED = 8
# A mutant may be this much slower than the tests without it, and this many seconds more, before it is ended.
SLOWER, MORE = 2.0, 10.0


def main() -> int:
    """Try the mutants of the targets that are named, or of all; 1 when one survives that nobody explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--sample", type=int, help="so many mutants of each target; 0 is all")
    parser.add_argument("--seed", type=int, default=SEED, help="what decides on the sample")
    parser.add_argument("--line", type=int, action="append", default=[], help="only mutants of this line")
    parser.add_argument("--list", action="store_true", help="count the mutants, and try none")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    chosen = {name: TARGETS[name] for name in given.targets or TARGETS}
    if given.list:
        for name, target in chosen.items():
            print(f"{name}: {len(_all(target, resources.root()))} mutants")
        return 0
    unexplained = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, open_ground(Path(folder)) as ground:
        for name, target in chosen.items():
            sample = target.sample if given.sample is None else given.sample
            tried = _chosen(_all(target, ground.root), sample, given.seed, given.line)
            unexplained += _try(ground, name, target, tried)
    return 1 if unexplained else 0


def _all(target: Target, root: Path) -> list[Mutant]:
    return [mutant for path in target.files for mutant in mutants.of_file(root, path)]


def _chosen(everything: list[Mutant], sample: int, seed: int, lines: list[int]) -> list[Mutant]:
    if lines:
        return [mutant for mutant in everything if mutant.line in lines]
    if not 0 < sample < len(everything):
        return everything
    kept = set(random.Random(seed).sample(range(len(everything)), sample))  # noqa: S311
    return [mutant for number, mutant in enumerate(everything) if number in kept]


def _try(ground: Ground, name: str, target: Target, tried: list[Mutant]) -> int:
    """Print what became of a target's mutants; returns how many survivors are unexplained."""
    ground.run([*target.arguments, "--collect-only"], warm=True)
    ground.sweep()
    sound = ground.run(target.arguments)
    if sound.status != 0:
        raise RuntimeError(f"{name}: the tests fail without any mutant: {sound.log}")
    print(f"{name}: {len(tried)} mutants, {sound.seconds:.1f} s without one", flush=True)

    begun = time.monotonic()
    explained = {one[:3] for one in EXPLAINED}
    counts: collections.Counter[str] = collections.Counter()
    for number, mutant in enumerate(tried, 1):
        outcome = _outcome(ground, mutant, target, SLOWER * sound.seconds + MORE)
        if outcome == "survived" and mutant.key in explained:
            outcome = "explained"
        counts[outcome] += 1
        if number % 20 == 0:
            print(f"  {number} tried in {time.monotonic() - begun:.0f} s", flush=True)
        if outcome in ("survived", "timeout"):
            print(f"  {outcome}: {mutant.path}:{mutant.line} {mutant.operator}", flush=True)
            print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)
    seconds = time.monotonic() - begun
    print(f"{name}: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}, {seconds:.0f} s")
    return counts["survived"]


def _outcome(ground: Ground, mutant: Mutant, target: Target, timeout: float) -> str:
    with ground.planted(mutant), contextlib.ExitStack() as stack:
        if mutant.path.endswith(".sql"):
            built = stack.enter_context(ground.rebuilt(mutant.path.split("/")[2], target.revision))
            if built.status != 0:
                ground.sweep()
                return "invalid"
        run = ground.run(target.arguments, timeout)
    ground.sweep()
    if run.status is None:
        return "timeout"
    return "killed" if run.status else "survived"


if __name__ == "__main__":
    sys.exit(main())
