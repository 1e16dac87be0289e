"""Write the locks beside this file, for every supported Python and platform: `make lock`.

dev.txt       the newest releases of what the extra `dev` needs
lowest.txt    the oldest runtime dependencies that pyproject.toml allows, with the tools of dev.txt
mutation.txt  what the extra `mutation` adds to dev.txt

What is already locked is not kept: a run takes what is newest now. Run with uv on PATH.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

HERE = Path(__file__).resolve().parent
PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==[^\\\n]*", re.MULTILINE)


def compile_lock(name: str, source: str, *options: str, requirements: str | None = None) -> None:
    """Write the lock `name` of `source`, with hashes; `requirements` is the text of the source `-`."""
    command = ["uv", "pip", "compile", "--quiet", "--upgrade", "--universal", "--python-version", "3.10"]
    command += [
        "--generate-hashes",
        "--no-emit-package",
        "pgflow-migrate",
        "--custom-compile-command",
        "make lock",
    ]
    subprocess.run(
        [*command, "--output-file", name, *options, source],
        cwd=HERE,
        input=requirements,
        text=True,
        check=True,
    )


def names(requirements: list[str]) -> set[str]:
    """The normalised names in a list of requirements."""
    found = (re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements)
    return {name[0].lower().replace("_", "-") for name in found if name}


def main() -> None:
    """Write the locks."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    compile_lock("dev.txt", "../pyproject.toml", "--extra", "dev")
    tools = names(extras["dev"])
    pins = [
        pin[0] for pin in PIN.finditer((HERE / "dev.txt").read_text(encoding="utf-8")) if pin["name"] in tools
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as constraints:
        constraints.write("\n".join(pins))
        constraints.flush()
        lowest = ("--resolution", "lowest-direct", "--no-annotate", "--constraints", constraints.name)
        compile_lock("lowest.txt", "../pyproject.toml", "--extra", "dev", *lowest)
    compile_lock("mutation.txt", "-", "--constraints", "dev.txt", requirements="\n".join(extras["mutation"]))


if __name__ == "__main__":
    main()
