"""Mutation testing: ``python -m tests.mutation [TARGET ...]``; the targets are in targets.py."""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests import in_memory
from tests.mutation import mutants
from tests.mutation.explained import EXPLAINED
from tests.mutation.ground import Ground, open_ground
from tests.mutation.mutants import Mutant
from tests.mutation.targets import TARGETS, Target

from pgflow_migrate import resources

SEED = 8
# A mutant is ended when it takes this much longer than the tests without it, but not within so many seconds.
SLOWER, AT_LEAST = 4.0, 30.0
# So many of the tests that noticed the last mutants come first: they often notice the neighbours, too.
FIRST = 12


def main() -> int:
    """Try the mutants of the targets that are named, or of all; 1 when one survives that nobody explained."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--sample", type=int, help="so many mutants of each target; 0 is all")
    parser.add_argument("--seed", type=int, default=SEED, help="what decides on the sample")
    parser.add_argument(
        "--line",
        type=_lines,
        action="append",
        default=[],
        metavar="N[-M]",
        help="only mutants of these lines",
    )
    parser.add_argument(
        "--quick", action="store_true", help="no slow tests for what the others do not notice"
    )
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
    in_memory.use_it()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, open_ground(Path(folder)) as ground:
        for name, target in chosen.items():
            sample = target.sample if given.sample is None else given.sample
            tried = _chosen(_all(target, ground.root), sample, given.seed, given.line)
            unexplained += _try(ground, name, target, tried, quick=given.quick)
    return 1 if unexplained else 0


def _all(target: Target, root: Path) -> list[Mutant]:
    return [mutant for path in target.files for mutant in mutants.of_file(root, path)]


def _lines(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _chosen(everything: list[Mutant], sample: int, seed: int, lines: list[range]) -> list[Mutant]:
    if lines:
        everything = [mutant for mutant in everything if any(mutant.line in some for some in lines)]
    if not 0 < sample < len(everything):
        return everything
    kept = set(random.Random(seed).sample(range(len(everything)), sample))  # noqa: S311
    return [mutant for number, mutant in enumerate(everything) if number in kept]


def _try(ground: Ground, name: str, target: Target, tried: list[Mutant], *, quick: bool) -> int:
    """Print what became of a target's mutants; returns how many survivors are unexplained."""
    arguments = target.stages[:1] if quick else target.stages
    if target.audits:
        print(f"{name}: {ground.keep_audited(arguments.pop(0))} databases are kept", flush=True)
    stages = [_stage(ground, name, some) for some in arguments]
    took = "".join(f", {stage.seconds:.1f} s without one" for stage in stages)
    print(f"{name}: {len(tried)} mutants{took}", flush=True)

    begun = time.monotonic()
    late: list[Mutant] = []
    counts: collections.Counter[str] = collections.Counter()
    for number, mutant in enumerate(tried, 1):
        outcome = _outcome(ground, mutant, target, stages)
        if outcome == "survived" and any(one.tells(*mutant.key) for one in EXPLAINED):
            outcome = "explained"
        counts[outcome] += 1
        if number % 20 == 0:
            print(f"  {number} tried in {time.monotonic() - begun:.0f} s", flush=True)
        if outcome == "survived":
            _print(mutant)
        if outcome == "timeout":
            late.append(mutant)
    seconds = time.monotonic() - begun
    if late:
        lines = " ".join(f"--line {line}" for line in sorted({mutant.line for mutant in late}))
        print(f"  timeouts; to try them again, while nothing else runs: {name} --sample 0 {lines}")
        for mutant in late:
            _print(mutant)
    print(f"{name}: {', '.join(f'{n} {what}' for what, n in sorted(counts.items()))}, {seconds:.0f} s")
    return counts["survived"]


@dataclass
class _Stage:
    """Tests, how long they take without a mutant, and which of them noticed the last mutants."""

    arguments: list[str]
    seconds: float
    killers: list[str]


def _stage(ground: Ground, name: str, arguments: list[str]) -> _Stage:
    ground.run([*arguments, "--collect-only"], warm=True)
    ground.sweep()
    sound = ground.run(arguments)
    ground.sweep()
    if sound.status != 0:
        raise RuntimeError(f"{name}: the tests fail without any mutant: {sound.log}")
    return _Stage(arguments, sound.seconds, [])


def _print(mutant: Mutant) -> None:
    print(f"  {mutant.path}:{mutant.line} {mutant.operator}")
    print(f"    - {mutant.before}\n    + {mutant.after}", flush=True)


def _outcome(ground: Ground, mutant: Mutant, target: Target, stages: list[_Stage]) -> str:
    with ground.planted(mutant), contextlib.ExitStack() as stack:
        stack.callback(ground.sweep)
        if target.audits:
            if not ground.is_audit(mutant):
                return "invalid"
            if not ground.audits_alike(mutant):
                return "killed"
        elif mutant.path.endswith(".sql") and not stack.enter_context(
            ground.rebuilt(mutant, target.revision)
        ):
            return "invalid"
        for stage in stages:
            limit = max(SLOWER * stage.seconds, AT_LEAST)
            run = ground.run(stage.arguments, limit, first=stage.killers)
            if run.status is None:
                return "timeout"
            if run.status:
                others = [name for name in stage.killers if name != run.killer]
                stage.killers = [run.killer, *others][:FIRST] if run.killer else others
                return "killed"
    return "survived"


if __name__ == "__main__":
    sys.exit(main())
