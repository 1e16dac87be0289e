"""Mutants of Python and SQL files: small changes, each of which some test ought to notice."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutation import sql

# One replacement for an operator shows as much as ten; "|" is mostly in annotations, which nobody evaluates.
_KEPT = re.compile(
    r"""core/(?:
      ReplaceBinaryOperator_(?:Add_Sub|Sub_Add|Mul_FloorDiv|Div_Mul|FloorDiv_Mul|Mod_Mul|Pow_Mul
        |LShift_RShift|RShift_LShift|BitAnd_BitOr)
      | ReplaceComparisonOperator_(?:Eq_NotEq|NotEq_Eq|Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt
        |Is_IsNot|IsNot_Is)
      | ReplaceUnaryOperator_(?:USub_UAdd|Delete_Not)
      | AddNot | ReplaceTrueWithFalse | ReplaceFalseWithTrue | ReplaceAndWithOr | ReplaceOrWithAnd
      | ReplaceBreakWithContinue | ReplaceContinueWithBreak | NumberReplacer
      | RemoveDecorator | ZeroIterationForLoop
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Mutant:
    """A file with one change.

    Attributes:
        path: the file, from the top of the checkout.
        operator: what was done.
        line: where, from 1.
        before: the line as it is.
        after: the line as it becomes; empty when it goes.
        nth: which of the file's lines that read like it, from 1.
        text: the whole file as it becomes.
    """

    path: str
    operator: str
    line: int
    before: str
    after: str
    nth: int
    text: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What tells it from others also when lines above it come and go."""
        return self.path, self.before, self.after, self.nth


def of_file(root: Path, path: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines; no two of them alike."""
    text = (root / path).read_text(encoding="utf-8")
    changed = sql.changed(text) if path.endswith(".sql") else _changed_python(text)
    found: dict[str, Mutant] = {}
    for operator, new in changed:
        if new not in found and new != text:
            found[new] = Mutant(path, operator, *_difference(text, new), new)
    return sorted(found.values(), key=lambda mutant: mutant.line)


def _difference(old: str, new: str) -> tuple[int, str, str, int]:
    """The first line that differs, what it was and is, and which of its kind."""
    before, after = old.split("\n"), new.split("\n")
    place = next(n for n, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1])
    gone = len(before) - len(after)
    line = before[place].strip()
    nth = sum(other.strip() == line for other in before[: place + 1])
    return place + 1, line, "" if gone > 0 else after[place].strip(), nth


def _changed_python(text: str) -> Iterator[tuple[str, str]]:
    from cosmic_ray import mutating, plugins

    for name in plugins.operator_names():
        if not _KEPT.fullmatch(name):
            continue
        occurrence = 0
        while (new := mutating.mutate_code(text, plugins.get_operator(name)(), occurrence)) is not None:
            occurrence += 1
            if _compiles(new):
                yield name.removeprefix("core/"), new
    yield from _without_statements(text)
    yield from _without_handlers(text)


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _without_statements(text: str) -> Iterator[tuple[str, str]]:
    """Calls, changes in place and early exits that do not happen: cosmic-ray has no operator for it."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if not called and not isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete)):
            continue
        assert isinstance(node, ast.stmt)
        assert node.end_lineno is not None
        kept = [*lines[: node.lineno - 1], lines[node.lineno - 1][: node.col_offset] + "pass"]
        # As many lines as before.
        kept += [""] * (node.end_lineno - node.lineno)
        new = "\n".join(kept + lines[node.end_lineno :])
        if _compiles(new):
            yield "StatementRemover", new


def _without_handlers(text: str) -> Iterator[tuple[str, str]]:
    """Exceptions that are not caught: cosmic-ray's operator breaks on names with dots."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler) and node.type is not None and node.type.lineno == node.lineno:
            line = lines[node.lineno - 1]
            new = line[: node.type.col_offset] + "GeneratorExit" + line[node.type.end_col_offset :]
            yield "HandlerRemover", "\n".join([*lines[: node.lineno - 1], new, *lines[node.lineno :]])
