"""The locks in requirements/ agree with pyproject.toml, for every Python and platform they are meant for."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("dev", "lowest")
PLATFORMS = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")]
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": system,
        "platform_machine": machine,
        "platform_system": system.title(),
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for python in ("3.10", "3.11", "3.12", "3.13", "3.14")
    for system, machine in PLATFORMS
]


@cache
def _pyproject() -> dict[str, Any]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    document: dict[str, Any] = tomllib.loads(text)
    return document


def _runtime() -> list[Requirement]:
    return [Requirement(line) for line in _pyproject()["project"]["dependencies"]]


def _extra(name: str) -> list[Requirement]:
    """The requirements of an extra, without the one that names this project."""
    found = map(Requirement, _pyproject()["project"]["optional-dependencies"][name])
    return [requirement for requirement in found if requirement.name != "pgflow-migrate"]


def _direct() -> list[Requirement]:
    """All that pyproject.toml asks for by name: at run time, for development, and to build."""
    build = [Requirement(line) for line in _pyproject()["build-system"]["requires"]]
    return [*_runtime(), *_extra("embedded"), *_extra("testcontainers"), *_extra("dev"), *build]


def _entries(lock: str) -> list[str]:
    """The pins of a lock, each with its hashes."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]


@cache
def _pins(lock: str) -> dict[str, list[Requirement]]:
    """Name of a package → its pins, of which markers choose one."""
    pins: dict[str, list[Requirement]] = defaultdict(list)
    for entry in _entries(lock):
        pin = Requirement(entry.split("--hash", 1)[0])
        pins[pin.name].append(pin)
    return pins


def _pinned(lock: str, name: str, environment: dict[str, str]) -> list[Version]:
    """The versions at which a lock has a package in an environment."""
    return [
        Version(next(iter(pin.specifier)).version)
        for pin in _pins(lock).get(canonicalize_name(name), [])
        if pin.marker is None or pin.marker.evaluate(environment)
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_one_version_in_range_of_all_that_is_asked_for(lock: str) -> None:
    wrong = [
        f"{requirement} on Python {environment['python_version']}, {environment['sys_platform']}: {found}"
        for environment in ENVIRONMENTS
        for requirement in _direct()
        if requirement.marker is None or requirement.marker.evaluate(environment)
        for found in [_pinned(lock, requirement.name, environment)]
        if len(found) != 1 or found[0] not in requirement.specifier
    ]
    assert wrong == []


def test_the_lowest_lock_has_the_lowest_versions_that_are_allowed() -> None:
    oldest = ENVIRONMENTS[0]
    bounds = {
        requirement.name: [
            Version(bound.version) for bound in requirement.specifier if bound.operator == ">="
        ]
        for requirement in [*_runtime(), *_extra("embedded"), *_extra("testcontainers")]
    }
    assert {name: _pinned("lowest", name, oldest) for name in bounds} == bounds


def test_the_lowest_lock_has_the_tools_of_the_other() -> None:
    names = [requirement.name for requirement in _extra("dev")]
    for environment in ENVIRONMENTS:
        tools = {name: _pinned("dev", name, environment) for name in names}
        assert {name: _pinned("lowest", name, environment) for name in names} == tools


def test_the_lock_for_mutation_testing_has_what_is_asked_for_and_agrees_with_the_other() -> None:
    for environment in ENVIRONMENTS:
        for requirement in _extra("mutation"):
            (found,) = _pinned("mutation", requirement.name, environment)
            assert found in requirement.specifier
        for name in _pins("mutation").keys() & _pins("dev").keys():
            if both := _pinned("dev", name, environment):
                assert _pinned("mutation", name, environment) in ([], both)


@pytest.mark.parametrize("lock", [*LOCKS, "mutation"])
def test_every_pin_is_exact_and_has_hashes_and_no_lock_names_an_index(lock: str) -> None:
    pattern = re.compile(r"[a-z0-9-]+==[^ ]+( ; [^-]+(-[^-]+)*?)?( +--hash=sha256:[0-9a-f]{64})+ *")
    assert [entry for entry in _entries(lock) if not pattern.fullmatch(entry)] == []
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links|@ ", text)
