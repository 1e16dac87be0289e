"""Where the Alembic environment, the audits, the helpers, the schemas, the docs and the fixtures are.

They live at the top of a checkout and, in a wheel, inside the package. This is the one module that knows.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def root() -> Path:
    """The folder that holds ``alembic.ini``, ``alembic/``, ``audits/`` and the other folders.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    for candidate in (_PACKAGE / "_resources", _CHECKOUT):
        if (candidate / "alembic.ini").is_file():
            return candidate
    raise FileNotFoundError(f"alembic.ini is neither in {_PACKAGE / '_resources'} nor in {_CHECKOUT}")


def alembic_ini() -> Path:
    """The configuration file of the Alembic environment."""
    return root() / "alembic.ini"


def alembic_call() -> str:
    """How a person calls Alembic here: its configuration is named unless it is in the working folder."""
    ini = alembic_ini()
    with contextlib.suppress(FileNotFoundError):  # the working folder has been deleted
        if ini.parent == Path.cwd():
            return "alembic"
    return f"alembic -c {shlex.quote(str(ini))}"


def revision_sql(revision: str) -> Path:
    """The folder of SQL files that a revision installs."""
    return root() / "alembic" / "sql" / revision


def revision_script(revision: str) -> Path:
    """The Python file of a revision."""
    return root() / "alembic" / "versions" / f"{revision}.py"


def audits() -> Path:
    """The folder of copyable audit scripts."""
    return root() / "audits"


def helpers() -> Path:
    """The folder of optional SQL functions that a database's owner installs by hand."""
    return root() / "helpers"


def schema(command: str) -> Path:
    """The JSON Schema of what ``command --format json`` prints."""
    return root() / "schemas" / f"{command}.schema.json"


def docs() -> Path:
    """The folder of the documentation, a Markdown file a page."""
    return root() / "docs"


def fixtures() -> Path:
    """The folder of replay scenarios, a subfolder for each release."""
    return root() / "fixtures"
