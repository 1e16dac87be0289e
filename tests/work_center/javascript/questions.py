"""The questions of engine.mjs, answered in Python; values are written as it writes them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pgflow_migrate.work_center import javascript
from pgflow_migrate.work_center.javascript import UNDEFINED, JavaScriptTypeError, Value

HERE = Path(__file__).parent

ANSWERS: dict[str, Callable[[Any], Value]] = {
    "parse": javascript.parse,
    "stringify": javascript.stringify,
    "stable_json": javascript.stable_json,
    "to_string": javascript.to_string,
    "to_number": javascript.to_number,
    "truthy": javascript.truthy,
    "is_object": javascript.is_object,
    "get_id": lambda value: javascript.get(value, "id"),
    "utf8": javascript.utf8,
    "sha256": javascript.sha256,
}
OF_A_VALUE = ("stringify", "stable_json", "to_string", "to_number", "truthy", "is_object", "get_id")


def answer(question: str, argument: Value) -> object:
    """What Python answers, written; what is thrown too."""
    return answer_of(ANSWERS[question], argument)


def answer_of(ask: Callable[[Any], Value], argument: Value) -> object:
    """What a function answers, likewise."""
    try:
        return written(ask(argument))
    except JavaScriptTypeError:
        return {"throws": "TypeError"}
    except ValueError:
        return {"throws": "SyntaxError"}


def written(value: Value) -> object:
    """The value as JSON can carry it whole; a number by its digits."""
    if value is UNDEFINED:
        return {"undefined": True}
    if isinstance(value, bytes):
        return {"bytes": list(value)}
    if isinstance(value, list):
        return [written(element) for element in value]
    if isinstance(value, dict):
        return {"object": [[key, written(member)] for key, member in value.items()]}
    if isinstance(value, float):
        return {"number": repr(value)}
    return value


def read(value: Any) -> Value:
    """The value of what `written` or engine.mjs wrote."""
    if isinstance(value, list):
        return [read(element) for element in value]
    if not isinstance(value, dict):
        return cast(Value, value)
    if "undefined" in value:
        return UNDEFINED
    if "number" in value:
        return float(value["number"])
    if "bytes" in value:
        return bytes(value["bytes"])
    return {key: read(member) for key, member in value["object"]}


def same_digits(answered: Any) -> object:
    """An answer of engine.mjs with Python's digits for its numbers, the order of members kept."""
    return answered if isinstance(answered, dict) and "throws" in answered else written(read(answered))


class Engine:
    """A Node.js that answers the questions of engine.mjs; a context manager."""

    def __init__(self) -> None:
        node = shutil.which("node")
        if node is None:
            raise FileNotFoundError("there is no node on the path")
        self._process = subprocess.Popen(
            [node, str(HERE / "engine.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
        )

    def ask(self, question: str, argument: Value) -> object:
        """What it answers, as `answer`."""
        to, back = self._process.stdin, self._process.stdout
        assert to
        assert back
        to.write(json.dumps([question, written(argument)]) + "\n")
        to.flush()
        line = back.readline()
        assert line, "node has ended"
        return same_digits(json.loads(line))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=10)
