"""Canonical JSON in Python is what pgflow._canonical_json gives."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dirty_runs.protocol import Session

from pgflow_migrate import canonical_json
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

_SLOW = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)

_CHARACTERS = st.one_of(
    st.sampled_from('"\\/\b\f\n\r\t\x01\x1f\x7f aAbz01.{}[],:é€😀\u2028\ufeff\uffff'),
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
)
_STRINGS = st.one_of(
    st.text(_CHARACTERS, max_size=6), st.sampled_from(["", "1.50", 'a"1.0"', "\\", "1e5", "0.0 ", "\\u0041"])
)
_KEYS = st.one_of(st.sampled_from(["a", "b", "aa", "é", "z", "1.0", '"', "\n"]), _STRINGS)


@pytest.fixture(scope="module")
def reading(server: Server, templates: Templates) -> Iterator[Session]:
    """A session for all tests here; they write nothing."""
    name = "canonical_json"
    session = Session(templates.clone("dirty_runs", name))
    yield session
    session.close()
    server.drop_database(name)


def canonical_in_sql(session: Session, texts: list[str]) -> list[tuple[str, bytes, int]]:
    """Text, SHA-256 and size that the database gives for JSON texts, in one statement."""
    return [
        (row["canonical"], row["sha256"], row["size"])
        for row in session.rows(
            "select made.canonical, pgflow._v2_sha256(made.canonical) as sha256,"
            " pgflow._v2_bytes(made.canonical) as size"
            " from unnest(%s::text[]) with ordinality as given (text, place)"
            " cross join lateral ("
            "  select pgflow._canonical_json(given.text::jsonb) as canonical offset 0"
            " ) made"
            " order by given.place",
            texts,
        )
    ]


def in_python(canonical: canonical_json.Canonical) -> tuple[str, bytes, int]:
    return canonical.text, canonical.sha256, canonical.size


# -- properties --------------------------------------------------------------------------------------------

_INTEGERS = st.one_of(st.integers(-3, 3), st.integers(), st.integers(-(10**40), 10**40))
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        _INTEGERS,
        st.floats(allow_nan=False, allow_infinity=False),
        st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30),
        _STRINGS,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(_KEYS, inner, max_size=4),
    ),
    max_leaves=6,
)


def dumped(value: Any) -> str:
    """JSON by Python's own library, but for Decimal, which it does not know."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{dumped(value[key])}" for key in value) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(dumped, value)) + "]"
    return json.dumps(value)


@given(st.lists(_VALUES, min_size=30, max_size=60))
@_SLOW
def test_a_value_has_the_text_size_and_hash_that_the_database_gives_it(
    reading: Session, values: list[Any]
) -> None:
    ours = [in_python(canonical_json.of_value(value)) for value in values]
    assert ours == canonical_in_sql(reading, [dumped(value) for value in values])


def spell(value: Any, how: random.Random) -> str:
    """A JSON text that means ``value``, spelled in one of many ways."""
    space = how.choice(["", "", " ", "\n\t", "\r "])
    if isinstance(value, dict):
        members = [(key, spell(inner, how)) for key, inner in value.items()]
        how.shuffle(members)
        if members and how.random() < 0.2:  # an earlier one of the same name does not count
            members.insert(0, (members[0][0], spell(how.choice([1, "x", {}]), how)))
        return (
            "{"
            + space
            + f"{space},".join(f"{spell(k, how)}{space}:{space}{v}" for k, v in members)
            + space
            + "}"
        )
    if isinstance(value, list):
        return "[" + f"{space},".join(spell(inner, how) for inner in value) + space + "]"
    if isinstance(value, str):
        return space + '"' + "".join(spell_character(character, how) for character in value) + '"'
    if isinstance(value, bool) or value is None:
        return space + json.dumps(value)
    return space + spell_number(value, how)


def spell_character(character: str, how: random.Random) -> str:
    kept = json.dumps(character, ensure_ascii=False)[1:-1]
    escaped = "".join(
        f"\\u{how.choice(('%04x', '%04X')) % unit}"
        for unit in memoryview(character.encode("utf-16-le")).cast("H")
    )
    return how.choice([kept, kept, escaped, "\\/" if character == "/" else kept])


def spell_number(value: int, how: random.Random) -> str:
    """A whole number times a power of ten, moved."""
    sign = "-" if value < 0 or (value == 0 and how.random() < 0.5) else ""
    digits = str(abs(value))
    match how.randrange(5):
        case 0:
            return sign + digits
        case 1:
            return sign + digits + "." + "0" * how.randint(1, 3)
        case 2:
            return f"{sign}{digits}{how.choice('eE')}{how.choice(['', '+', '-'])}{'0' * how.randint(1, 3)}"
        case 3:
            zeros = how.randint(1, 4)
            return f"{sign}{digits}{'0' * zeros if digits != '0' else ''}e-{'0' * how.randint(0, 2)}{zeros}"
        case _:
            moved = how.randint(1, 30)
            padded = digits.rjust(moved + 1, "0")
            return f"{sign}{padded[:-moved]}.{padded[-moved:]}0E{moved}"


_FEW = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 12), st.sampled_from(["", "1", "a/", "é😀", '"\\'])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(["a", "bb", "é", "1.0"]), inner, max_size=2),
    ),
    max_leaves=3,
)


@given(st.lists(_FEW, min_size=12, max_size=24), st.integers(0, 2**32))
@_SLOW
def test_texts_of_one_value_have_one_canonical_text_and_others_have_others(
    reading: Session, values: list[Any], seed: int
) -> None:
    how = random.Random(seed)  # noqa: S311
    texts = [spell(value, how) for value in values for _ in range(3)]
    ours = [canonical_json.of_json(text) for text in texts]
    assert [in_python(one) for one in ours] == canonical_in_sql(reading, texts)
    assert ours == [canonical_json.of_value(value) for value in values for _ in range(3)]
    assert [canonical_json.of_json(one.text) for one in ours] == ours, "canonical text is its own"

    # Equal as jsonb, if and only if equal as canonical texts: every pair.
    assert (
        reading.value(
            "with given as materialized ("
            "  select place, text::jsonb as value, canonical"
            "  from unnest(%s::text[], %s::text[]) with ordinality as u (text, canonical, place)"
            ") select count(*) from given one join given other on one.place < other.place"
            " where (one.value = other.value) <> (one.canonical = other.canonical)",
            texts,
            [one.text for one in ours],
        )
        == 0
    )


_ODD = st.one_of(
    st.text(st.sampled_from('{}[],:"\\ \n\t\x0b\u00a0-+.eE0123u4aAdD89bctrufalsn'), max_size=10),
    st.from_regex(r'\A[\[{]?"(\\[u"n/xD]?[dD89abcf0]{0,4}){0,4}"[\]}]?\Z'),
    st.from_regex(r"\A-?0?[0-9]{0,3}\.?[0-9]{0,3}[eE]?[+-]?[0-9]{0,7}\Z"),
    st.from_regex(r"\A(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?e-?(1310[67][0-9]|163[78][0-9]|107374182[0-9])\Z"),
)


@given(st.lists(_ODD, min_size=40, max_size=80))
@_SLOW
def test_a_text_is_refused_exactly_where_the_database_refuses_it(reading: Session, texts: list[str]) -> None:
    refused: list[bool] = []
    for text in texts:
        try:
            canonical_json.of_json(text)
            refused.append(False)
        except ValueError:
            refused.append(True)
    valid = reading.rows(
        "select pg_input_is_valid(text, 'jsonb') as valid"
        " from unnest(%s::text[]) with ordinality as u (text, place) order by place",
        texts,
    )
    assert dict(zip(texts, refused, strict=True)) == {
        text: not row["valid"] for text, row in zip(texts, valid, strict=True)
    }
    kept = [text for text, was_refused in zip(texts, refused, strict=True) if not was_refused]
    assert [in_python(canonical_json.of_json(text)) for text in kept] == canonical_in_sql(reading, kept)


# -- hard cases --------------------------------------------------------------------------------------------

HARD: dict[str, tuple[str, str]] = {
    "keys by length in bytes": ('{"é":1,"aaa":2,"zz":3,"b":4}', '{"b": 4, "zz": 3, "é": 1, "aaa": 2}'),
    "keys with escapes": (
        r'{"\u0061":1,"\n":2,"\"":3,"\u00e9":4,"\ud83d\ude00":5,"\u001F":6}',
        '{"\\n": 2, "\\u001f": 6, "\\"": 3, "a": 1, "é": 4, "😀": 5}',
    ),
    "equal keys": (r'{"a":1,"b":0,"\u0061":{"x":1e1}}', '{"a": {"x": 10}, "b": 0}'),
    "number in a string": ('{"1.50":"1.50","x":1.50}', '{"x": 1.5, "1.50": "1.50"}'),
    "number after an escaped quote": (r'["\"1.50", 1.50, "\\", 2.0, "3.0\\\""]',
        r'["\"1.50", 1.5, "\\", 2, "3.0\\\""]'),
    "negative zeros": ("[-0, -0.0, -0e5, 0.00, -0.0e-3]", "[0, 0, 0, 0, 0]"),
    "exponents": ("[1e3, 1E-3, 12.50e1, 120e-1, 1.0e0]", "[1000, 0.001, 125, 12, 1]"),
    "zeros inside": ("[100, 1.010, 10.0, 0.10, 1000.0001000]", "[100, 1.01, 10, 0.1, 1000.0001]"),
    "control characters": (r'"\u0001\b\f\n\r\t\u001f\u007f\/"', '"\\u0001\\b\\f\\n\\r\\t\\u001f\x7f/"'),
    "empty containers": ('[ { } , [ ] , "" ]', '[{}, [], ""]'),
}  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), HARD.values(), ids=HARD)
def test_hard_texts_are_as_the_database_writes_them(reading: Session, text: str, canonical: str) -> None:
    assert canonical_json.of_json(text).text == canonical
    assert canonical_in_sql(reading, [text]) == [in_python(canonical_json.of_json(text))]


BIG = {
    "large": "1e1000",
    "largest": "9" * 131_072,
    "largest by its exponent": "-1e131071",
    "smallest": "1e-16383",
    "longest fraction": "0." + "1" * 16_383,
    "zeros after the point": "1." + "0" * 16_383,
    "zeros that the exponent takes": "1." + "0" * 20_000 + "e20000",
    "zeros before the first digit": "0." + "0" * 140_000 + "1e140000",
    "zero with a large exponent": "0e1073741823",
}


@pytest.mark.parametrize("text", BIG.values(), ids=BIG)
def test_the_largest_and_the_smallest_numbers_are_written_out(reading: Session, text: str) -> None:
    ours = canonical_json.of_json(f"[{text}]")
    assert "e" not in ours.text
    assert canonical_in_sql(reading, [f"[{text}]"]) == [in_python(ours)]


def test_long_integers_and_decimals_of_python_are_written_out(reading: Session) -> None:
    values = [
        10**131_072 - 1,
        -(2**20_000),
        Decimal("1E+3"),
        Decimal("-0"),
        Decimal("1.500"),
        5e-324,
        1e308,
        -0.0,
    ]
    # str() of an integer is limited.
    texts = [format(Decimal(value), "f") if isinstance(value, int) else str(value) for value in values]
    assert [in_python(canonical_json.of_value(value)) for value in values] == canonical_in_sql(reading, texts)


def test_five_thousand_levels_are_as_the_database_writes_them(reading: Session) -> None:
    arrays = "[" * 5_000 + "1.0" + "]" * 5_000
    objects = '{"a":' * 5_000 + "-0.0" + "}" * 5_000
    ours = [canonical_json.of_json(arrays), canonical_json.of_json(objects)]
    assert [one.size for one in ours] == [10_001, 35_001]
    assert [in_python(one) for one in ours] == canonical_in_sql(reading, [arrays, objects])

    value: object = 1
    for _ in range(5_000):
        value = [value]
    assert canonical_json.of_value(value) == ours[0]


REFUSED_TEXTS = {
    "nul": (r'"\u0000"', "jsonb cannot hold the character U+0000"),
    "nul in a key": (r'{"a\u0000":1}', "jsonb cannot hold the character U+0000"),
    "nul in a value that does not count": (r'{"a":"\u0000","a":1}', "jsonb cannot hold the character U+0000"),
    "high surrogate": (r'"\ud83d"', "jsonb cannot hold a lone surrogate: U+D83D"),
    "low surrogate": (r'"\ude00"', "jsonb cannot hold a lone surrogate: U+DE00"),
    "surrogates in the wrong order": (r'"\ude00\ud83d"', "jsonb cannot hold a lone surrogate: U+DE00"),
    "too large": ("1e131072", "jsonb cannot hold a number with more than 131072 digits before the point"),
    "too small": ("1e-16384", "jsonb cannot hold a number with more than 16383 digits after the point"),
    "zeros count": (
        "0." + "0" * 16_384,
        "jsonb cannot hold a number with more than 16383 digits after the point",
    ),
    "exponent": ("0e1073741824", "jsonb cannot hold a number with the exponent 1073741824"),
    "long exponent": (
        "1e" + "1234567890" * 3,
        "jsonb cannot hold a number with the exponent 12345678901234567890",
    ),
    "nan": ("NaN", "not JSON at character 0: 'NaN'"),
    "infinity": ("[-Infinity]", "not JSON at character 1: '-Infinity]'"),
    "nothing": (" ", "not JSON at character 1: ''"),
    "two values": ("1 2", "not JSON at character 2: '2'"),
    "unclosed": ('{"a": [1', "not JSON at character 8: ''"),
    "closed by another": ("[1}", "not JSON at character 2: '}'"),
    "comma at the end": ("[1,]", "not JSON at character 3: ']'"),
    "raw line end in a string": ('"a\nb"', "not JSON at character 0: '\"a\\nb\"'"),
    "long": ("[" + "x" * 30, "not JSON at character 1: '" + "x" * 20 + "'"),
    "byte order mark": ("\ufeff1", "not JSON at character 0: '\\ufeff1'"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED_TEXTS.values(), ids=REFUSED_TEXTS)
def test_what_jsonb_cannot_hold_is_refused_with_words(reading: Session, text: str, message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        canonical_json.of_json(text)
    assert str(refusal.value) == message
    assert reading.value("select pg_input_is_valid(%s, 'jsonb')", text) is False


INSIDE_ITSELF: list[object] = []
INSIDE_ITSELF.append({"a": INSIDE_ITSELF})
REFUSED_VALUES: dict[str, tuple[object, type[Exception], str]] = {
    "nul": ("a\0", ValueError, "jsonb cannot hold the character U+0000"),
    "lone surrogate": (["\ud800"], ValueError, "jsonb cannot hold a lone surrogate: U+D800"),
    "lone surrogate in a key": ({"\udfff": 1}, ValueError, "jsonb cannot hold a lone surrogate: U+DFFF"),
    "two halves": ("\ud83d\ude00", ValueError, "jsonb cannot hold a lone surrogate: U+D83D"),
    "nan": (float("nan"), ValueError, "jsonb cannot hold the number nan"),
    "infinity": (float("-inf"), ValueError, "jsonb cannot hold the number -inf"),
    "decimal nan": (Decimal("sNaN"), ValueError, "jsonb cannot hold the number sNaN"),
    "long nan": (
        Decimal("NaN" + "1234567890" * 2),
        ValueError,
        "jsonb cannot hold the number NaN12345678901234567",
    ),
    "integer": (
        10**131_072,
        ValueError,
        "jsonb cannot hold a number with more than 131072 digits before the point",
    ),
    "huge integer": (
        1 << 10**7,
        ValueError,
        "jsonb cannot hold a number with more than 131072 digits before the point",
    ),
    "decimal": (
        Decimal("1E-16384"),
        ValueError,
        "jsonb cannot hold a number with more than 16383 digits after the point",
    ),
    "itself": (INSIDE_ITSELF, ValueError, "JSON cannot hold a container that is inside itself"),
    "key": ({1: 2}, TypeError, "a JSON key is a string, not int: 1"),
    "bytes": (b"a", TypeError, "JSON has no bytes"),
    "set": ([{1}], TypeError, "JSON has no set"),
}


@pytest.mark.parametrize(("value", "kind", "message"), REFUSED_VALUES.values(), ids=REFUSED_VALUES)
def test_values_that_jsonb_cannot_hold_are_refused_with_words(
    value: object, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as refusal:
        canonical_json.of_value(value)
    assert str(refusal.value) == message


def test_one_container_in_two_places_is_not_inside_itself() -> None:
    twice = {"a": [1]}
    assert canonical_json.of_value([twice, twice]).text == '[{"a": [1]}, {"a": [1]}]'


def test_size_and_hash_are_those_of_utf_8() -> None:
    canonical = canonical_json.of_value("é😀")
    assert canonical.size == 8
    assert canonical.sha256.hex() == "5120b0dbdd5539f03b48389a6740c87aa497758ca96b3d69165453c9e01f3235"
