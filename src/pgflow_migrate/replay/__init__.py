"""Replaying populated old databases through audit and upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgflow_migrate import lazily

if TYPE_CHECKING:
    from pgflow_migrate.replay.file import replay_file
    from pgflow_migrate.replay.results import Outcome, Report, Result
    from pgflow_migrate.replay.run import replay
    from pgflow_migrate.replay.scenario import (
        Check,
        ExpectedFinding,
        Scenario,
        ScenarioError,
        SelectionError,
        Setup,
        load_all,
    )
    from pgflow_migrate.replay.templates import Templates
else:
    __getattr__ = lazily.names(
        __name__,
        {
            "file": ("replay_file",),
            "results": ("Outcome", "Report", "Result"),
            "run": ("replay",),
            "scenario": (
                "Check",
                "ExpectedFinding",
                "Scenario",
                "ScenarioError",
                "SelectionError",
                "Setup",
                "load_all",
            ),
            "templates": ("Templates",),
        },
    )

__all__ = [
    "Check",
    "ExpectedFinding",
    "Outcome",
    "Report",
    "Result",
    "Scenario",
    "ScenarioError",
    "SelectionError",
    "Setup",
    "Templates",
    "load_all",
    "replay",
    "replay_file",
]
