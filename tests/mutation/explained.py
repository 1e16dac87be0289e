"""Survivors that nothing can kill, or that nothing should: each with its reason."""

from __future__ import annotations

EXPLAINED: tuple[tuple[str, str, str, str], ...] = ()
"""File, the line as it is, as it becomes, and why no test tells them apart."""
