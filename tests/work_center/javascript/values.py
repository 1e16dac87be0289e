"""Strategies for hypothesis: JavaScript's values and JSON texts, odd ones in plenty."""

from __future__ import annotations

import json
import math
from typing import cast

from hypothesis import strategies as st

from pgflow_migrate.work_center.javascript import UNDEFINED, Value


def joined(text: str) -> str:
    """The text with each pair of surrogates as one character, as every str of a value is."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


_CHARACTERS = st.one_of(
    st.sampled_from(
        '"\\/\b\f\n\r\t\0\x1f\x7f aAbz019.-+eExX_{}[],:é€😀\u00a0\u2028\ufeff\uffff\ue000\ud83d\ude00'
    ),
    st.characters(),
)
TEXTS = st.text(_CHARACTERS, max_size=8).map(joined)
NUMERALS = st.one_of(
    st.text(st.sampled_from(" \t\u00a0\ufeff+-.0123456789eExXoObBfFnIity_"), max_size=10),
    st.floats().map(repr),
    st.integers().map(str),
    st.integers(min_value=0).map(hex),
)
_MANY = st.sampled_from(
    ["id", "a", "b", "é", "😀", "\ue000", "__proto__", "toString", "valueOf", "constructor"]
)
_INDEXES = st.one_of(
    st.integers(0, 12), st.integers(2**31 - 2, 2**31 + 2), st.integers(2**32 - 3, 2**32 + 2), st.integers()
).map(str)
_KEYS = st.one_of(
    _MANY, _INDEXES, TEXTS, st.sampled_from(["00", "01", "-0", "1.0", "\uff11", "\u00b2", " 1"])
)
NUMBERS = st.one_of(
    st.floats(),
    st.floats(1e-8, 1e-4),
    st.floats(1e14, 1e24),
    st.integers(-(2**53), 2**53).map(float),
    st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1e21, 1e-7, 1e23]),
)
_LEAVES: st.SearchStrategy[Value] = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, NUMERALS)


def _containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return cast(
        "st.SearchStrategy[Value]",
        st.one_of(st.lists(inner, max_size=5), st.dictionaries(_KEYS, inner, max_size=6)),
    )


# What may be written to JSON, and what the program may make besides.
FROM_JSON = st.recursive(_LEAVES, _containers, max_leaves=12)
ANY = st.recursive(st.one_of(_LEAVES, st.just(UNDEFINED), st.binary(max_size=12)), _containers, max_leaves=12)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """JSON spelled in many ways, with repeated keys, and about a third of it broken in one place."""
    text = draw(st.recursive(_SPELLED, _spelled_containers, max_leaves=10))
    if draw(st.integers(0, 2)):
        return text
    place = draw(st.integers(0, len(text)))
    gone = draw(st.integers(0, 2))
    put = draw(
        st.sampled_from(
            ["", *'{}[],:"\\ \t\f\0\u00a0\ufeff-+.0e5', "\\u", "NaN", "null", "Infinity", "true", "01"]
        )
    )
    return joined(text[:place] + put + text[place + gone :])


def _spelled_string(text: str) -> st.SearchStrategy[str]:
    whole = text.encode("utf-8", "replace").decode()
    return st.sampled_from(
        [
            json.dumps(text),
            json.dumps(whole, ensure_ascii=False),
            f'"{"".join(f"{chr(92)}u{ord(c):04X}" if ord(c) < 65536 else c for c in whole)}"',
        ]
    )


_BLANKS = st.text(st.sampled_from(" \t\n\r"), max_size=2)
_STRINGS = TEXTS.flatmap(_spelled_string)
_SPELLED_KEYS = st.one_of(_KEYS.flatmap(_spelled_string), _STRINGS)
_FRACTIONS = st.one_of(st.just(""), st.integers(0, 10**25).map(".{:09}".format))
_EXPONENTS = st.one_of(
    st.just(""), st.builds("{}{}".format, st.sampled_from(["e", "E-", "e+"]), st.integers(0, 330))
)
_SPELLED = st.one_of(
    st.sampled_from(
        ["null", "true", "false", "0", "-0", "1e999", "-1e-999", "1E+2", "0.1", "12345678901234567890"]
    ),
    st.builds("{}{}{}{}".format, st.sampled_from(["", "-"]), st.integers(0, 10**25), _FRACTIONS, _EXPONENTS),
    NUMBERS.filter(math.isfinite).map(repr),
    _STRINGS,
)


def _spelled_containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    elements = st.lists(st.builds("{1}{0}{1}".format, inner, _BLANKS), max_size=4)
    members = st.lists(
        st.builds("{1}{0}{2}:{1}{3}{2}".format, _SPELLED_KEYS, _BLANKS, _BLANKS, inner), max_size=6
    )
    return st.one_of(
        elements.map(lambda all_: f"[{','.join(all_)}]"), members.map(lambda all_: f"{{{','.join(all_)}}}")
    )
