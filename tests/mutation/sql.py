"""Mutants of SQL: one token, or a few that belong together, become others.

The text is cut by PostgreSQL's own scanner, inside dollar quotes too, where function bodies and the parts of
queries are. Strings in single quotes stay as they are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pglast import parser

_DOLLARS = re.compile(r"\$[A-Za-z_]*\$")
_COMMENTS = ("SQL_COMMENT", "C_COMMENT")

_INSTEAD = {
    "=": ("<>",),
    "<>": ("=",),
    "!=": ("=",),
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "+": ("-",),
    "-": ("+",),
    "*": ("/",),
    "~": ("!~",),
    "!~": ("~",),
    "and": ("or",),
    "or": ("and",),
    "true": ("false",),
    "false": ("true",),
    "min": ("max",),
    "max": ("min",),
    "least": ("greatest",),
    "greatest": ("least",),
    "asc": ("desc",),
    "desc": ("asc",),
    "bool_and": ("bool_or",),
    "bool_or": ("bool_and",),
    "exit": ("continue",),
    "left": ("inner",),
    "lower": ("upper",),
}
_NUMBER = re.compile(r"[0-9]+\Z")


@dataclass(frozen=True)
class _Token:
    word: str
    start: int
    end: int


def changed(text: str) -> Iterator[tuple[str, str]]:
    """Each mutant's operator and whole text. Not all of them are SQL: PostgreSQL is to judge."""
    tokens = list(_tokens(text, 0))
    for number, token in enumerate(tokens):
        following = [t.word for t in tokens[number : number + 4]] + [""] * 4
        if token.word == "exists" and number and tokens[number - 1].word == "not":
            continue
        for operator, count, new in _replacements(token.word, following):
            last = tokens[number + count - 1]
            yield operator, text[: token.start] + new + text[last.end :]
    # A clause of its own line goes: "and …" and "or …" that are complete where the line ends.
    for start, end in _clauses(text):
        yield "drop clause", text[:start] + " " * (end - start) + text[end:]


def _replacements(word: str, following: list[str]) -> Iterator[tuple[str, int, str]]:
    """Operator, how many tokens go, and what comes in their place."""
    for new in _INSTEAD.get(word, ()):
        yield f"{word} to {new}", 1, new
    if _NUMBER.match(word):
        yield "number + 1", 1, str(int(word) + 1)
        if int(word):
            yield "number - 1", 1, str(int(word) - 1)
    match following[:3]:
        case ["is", "not", "null"]:
            yield "is not null to is null", 3, "is null"
        case ["is", "null", _]:
            yield "is null to is not null", 2, "is not null"
        case ["not", "exists", _]:
            yield "not exists to exists", 2, "exists"
        case ["not", "null", _]:
            return
        case ["not", *_]:
            yield "drop not", 1, ""
        case ["exists", *_]:
            yield "exists to not exists", 1, "not exists"
        case ["union", "all", _]:
            yield "union all to union", 2, "union"
        case ["for", "update" | "share", "skip" | "nowait"]:
            yield "drop lock", 4 if following[2] == "skip" else 3, ""
        case ["for", "update" | "share", _]:
            yield "drop lock", 2, ""
        case ["distinct", _, _]:
            yield "drop distinct", 1, ""


def _tokens(text: str, offset: int) -> Iterator[_Token]:
    for token in parser.scan(text):
        word = text[token.start : token.end + 1]
        if token.name in _COMMENTS:
            continue
        if token.name == "SCONST" and (quote := _DOLLARS.match(word)):
            inside = word[quote.end() : -quote.end()]
            yield from _tokens(inside, offset + token.start + quote.end())
        else:
            yield _Token(word.lower(), offset + token.start, offset + token.end + 1)


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    place = 0
    for line in text.split("\n"):
        found = re.match(r"\s*((?:and|or) [^-]*?)( then)?;?\s*(?:--.*)?\Z", line)
        if found and _balanced(found[1]):
            yield place + found.start(1), place + found.end(1)
        place += len(line) + 1


def _balanced(text: str) -> bool:
    depths = list(itertools.accumulate({"(": 1, ")": -1}.get(c, 0) for c in text))
    return min(depths, default=0) >= 0 and depths[-1] == 0
