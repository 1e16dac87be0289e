"""What both chains' ledgers have in common: names that nobody knows, aliases, checksums that changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def unknown(names: Iterable[str], known: Iterable[str], renamed: Mapping[str, str]) -> tuple[str, ...]:
    """The recorded names that this installation does not have, sorted.

    Args:
        names: what is recorded.
        known: the names of this installation.
        renamed: earlier names to present ones.
    """
    return tuple(sorted({renamed.get(name, name) for name in names} - set(known)))


def changed(recorded: Iterable[tuple[str, str]], present: Mapping[str, str]) -> tuple[str, ...]:
    """The recorded names whose checksum is no longer the present one, in the order given.

    Args:
        recorded: names that this installation has, with the checksums that are recorded.
        present: the checksums of this installation.
    """
    return tuple(name for name, checksum in recorded if checksum != present[name])
