"""Finding the flow that ``--flow module:attribute`` names."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from pgflow_migrate.errors import EXIT_USAGE, PgflowMigrateError
from pgflow_migrate.worker.flow import Flow


class FlowNotFoundError(PgflowMigrateError):
    """The name leads to no flow."""

    exit_code = EXIT_USAGE


class ModuleBrokenError(PgflowMigrateError):
    """The module is there, and importing it fails."""


def load_flow(name: str, folder: Path) -> Flow:
    """The flow called ``module:attribute``.

    Args:
        name: a module's dotted name and the name of the flow in it.
        folder: looked in first, before Python's own path.

    Raises:
        FlowNotFoundError: the name is not of that form, or there is no such module, attribute or flow.
        ModuleBrokenError: importing the module fails.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not attribute.isidentifier() or not _is_dotted(module_name):
        raise FlowNotFoundError(
            f"{name!r} does not name a flow.",
            "Write module:attribute, such as flows:orders or app.flows:orders.",
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise _not_imported(module_name, folder, error) from error
    found = getattr(module, attribute, None)
    if isinstance(found, Flow):
        return found
    flows = sorted(key for key, value in vars(module).items() if isinstance(value, Flow))
    known = f"Its flows: {', '.join(flows)}." if flows else "It defines no flow."
    if not hasattr(module, attribute):
        raise FlowNotFoundError(f"Module {module_name} has no attribute {attribute!r}.", known)
    raise FlowNotFoundError(f"{name} is no flow but of type {type(found).__name__}.", known)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _not_imported(module_name: str, folder: Path, error: Exception) -> PgflowMigrateError:
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and f"{module_name}.".startswith(f"{error.name}.")
    ):
        return FlowNotFoundError(
            f"There is no module {error.name}.", f"It is looked for in {folder} and in Python's own path."
        )
    where = traceback.extract_tb(error.__traceback__)[-1]
    if isinstance(error, SyntaxError):
        at = f"{error.filename}, line {error.lineno}"
    else:
        at = f"{where.filename}, line {where.lineno}"
    return ModuleBrokenError(
        f"Module {module_name} cannot be imported: {type(error).__name__}: {error} ({at}).",
        "Run python -c 'import " + module_name + "' for the traceback.",
    )
