"""A page as headless Chromium shows it: what its scripts leave of it, and a picture."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def program() -> str | None:
    """The browser: $CHROMIUM, or one by its usual names; None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)


def document(page: Path) -> str:
    """The page as HTML after its scripts have run."""
    return _run("--dump-dom", page)


def picture(page: Path, file: Path, *, width: int, height: int, dark: bool = False) -> None:
    """Take a PNG of the top of the page, in CSS pixels."""
    _run(
        f"--screenshot={file}",
        page,
        f"--window-size={width},{height}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
    )


def _run(action: str, page: Path, *options: str) -> str:
    browser = program()
    if browser is None:
        raise FileNotFoundError("there is no Chromium; name one in CHROMIUM")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        return subprocess.run(
            [browser, *_OPTIONS, f"--user-data-dir={profile}", *options, action, page.as_uri()],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
