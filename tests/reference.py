"""The reference in docs/python.md, made of signatures and docstrings: ``make api`` writes it anew.

What is public is what ``__all__`` names. Nothing is imported for it: the source says all there is to say.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "python.md"
MARK = "<!-- Below: made by `make api` from signatures and docstrings. Do not edit. -->\n"

MODULES = {
    "pgflow_migrate.audit": "What stands in the way of the upgrade",
    "pgflow_migrate.upgrade": "Upgrading, and where a database stands",
    "pgflow_migrate.verify": "Whether an upgraded database keeps its promises",
    "pgflow_migrate.export": "A database in a file",
    "pgflow_migrate.replay": "Old databases through audit and upgrade",
    "pgflow_migrate.servers": "PostgreSQL servers for tests",
    "pgflow_migrate.worker": "The Python worker",
    "pgflow_migrate.dirty_runs": "Executors of protocol 2",
    "pgflow_migrate.dirty_runs.status": "What runs of protocol 2 wait for",
    "pgflow_migrate.canonical_json": "One text for equal JSON values",
    "pgflow_migrate.work_center.upgrade": "Upgrading a store of the Work Center",
    "pgflow_migrate.work_center.status": "Looking at a store",
    "pgflow_migrate.work_center.verify": "Whether a store keeps its promises",
    "pgflow_migrate.work_center.progress": "What an upgrade of a store tells",
    "pgflow_migrate.work_center.errors": "Why an upgrade of a store stops",
    "pgflow_migrate.errors": "What can go wrong",
}
"""Every module that is meant to be imported, and what it is for."""

WIDTH = 110
_SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Yields")
_ROLE = re.compile(r":\w+:`(?:~[\w.]*?(\w+)|([^`<]+?)(?: <[^`]*>)?)`")

Function = ast.FunctionDef
Node = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass
class Doc:
    """A docstring: prose, what its sections say, by name, and the prose after them."""

    prose: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    sections: dict[str, dict[str, str]] = field(default_factory=dict)


@cache
def _tree(module: str) -> ast.Module:
    path = ROOT / "src" / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def public(module: str) -> tuple[str, ...]:
    """The names in ``__all__``, in its order."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return tuple(ast.literal_eval(node.value))
    raise LookupError(f"{module} has no __all__")


def definition(module: str, name: str) -> tuple[Node, str]:
    """Where a name is defined, and the docstring that belongs to it."""
    body = _tree(module).body
    for place, node in enumerate(body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return node, ast.get_docstring(node) or ""
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if ast.unparse(target) == name:
                return node, _string(body[place + 1]) if place + 1 < len(body) else ""
    for imported in ast.walk(_tree(module)):
        if isinstance(imported, ast.ImportFrom) and name in {alias.name for alias in imported.names}:
            return definition(imported.module or "", name)
    raise LookupError(f"{module} has no {name}")


def _string(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value))
    return ""


def read(docstring: str) -> Doc:
    """Take a docstring apart. Literal blocks are left out: the guide has the examples."""
    doc, section, name = Doc(), "", ""
    for line in docstring.splitlines():
        text = line.strip()
        if line[:1] not in ("", " "):
            section = text[:-1] if text.endswith(":") and text[:-1] in _SECTIONS else ""
            if section:
                doc.sections[section] = {}
                name = ""
                continue
            (doc.after if doc.sections else doc.prose).append(text)
        elif not text:
            if not section:
                (doc.after if doc.sections else doc.prose).append("")
        elif section:
            entry = re.match(r"    ([\w.*, ]+): (.*)", line)
            if entry and section != "Returns" and not line.startswith("     "):
                name = entry[1]
                doc.sections[section][name] = entry[2]
            else:
                said = doc.sections[section].get(name, "")
                doc.sections[section][name] = f"{said} {text}".strip()
    return doc


def _markdown(text: str) -> str:
    text = _ROLE.sub(lambda role: f"`{role[1] or role[2]}`", text)
    return text.replace("``", "`")


def _prose(written: list[str]) -> str:
    paragraphs = "\n".join(line for line in written if line != "::").strip()
    return _markdown(re.sub(r"\n{3,}", "\n\n", paragraphs))


def signature(function: Function, *, indent: str = "") -> str:
    """``def name(…) -> …: ...``, on one line if it fits, else a line for each argument."""
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    if _decorated(function, "contextlib.contextmanager"):
        returns = returns.replace("Iterator[", "AbstractContextManager[")
    parts = _parameters(function)
    one = f"{indent}def {function.name}({', '.join(parts)}){returns}: ..."
    if len(one) <= WIDTH:
        return _quoted(one)
    lines = "".join(f"{indent}    {part},\n" for part in parts)
    return _quoted(f"{indent}def {function.name}(\n{lines}{indent}){returns}: ...")


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    parts = [ast.unparse(argument) for argument in plain]
    for place, default in enumerate(reversed(arguments.defaults), 1):
        parts[-place] = _with_default(plain[-place], default)
    if arguments.vararg:
        parts.append(f"*{ast.unparse(arguments.vararg)}")
    elif arguments.kwonlyargs:
        parts.append("*")
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        parts.append(ast.unparse(argument) if value is None else _with_default(argument, value))
    return parts


def _with_default(argument: ast.arg, default: ast.expr) -> str:
    value = "..." if isinstance(default, ast.Lambda) else ast.unparse(default)
    return f"{ast.unparse(argument)} = {value}"


def _quoted(text: str) -> str:
    text = re.sub(r"'([^'\"]*)'", r'"\1"', text)
    # What modules call their own is not for readers.
    text = re.sub(r"(?<![.\w])_?Connection\b(?!\[)", "psycopg.Connection", text)
    return re.sub(r"\b_H\b", "Handler", text)


def _entries(doc: Doc, section: str, types: dict[str, str], before: str = "") -> Iterator[str]:
    for names, said in doc.sections.get(section, {}).items():
        named = [
            f"`{name}`" + (f" ({types[name]})" if name in types else "")
            for name in (part.strip() for part in names.split(","))
        ]
        yield f"{before}- {', '.join(named)}: {_markdown(said)}"


def _details(doc: Doc, before: str = "") -> Iterator[str]:
    """What a function takes, returns and raises, as a list."""
    yield from _entries(doc, "Args", {}, before)
    for section, words in (("Returns", "Returns"), ("Yields", "Yields")):
        for said in doc.sections.get(section, {}).values():
            yield f"{before}- {words}: {_markdown(said)}"
    for name, said in doc.sections.get("Raises", {}).items():
        kinds = ", ".join(f"`{kind.strip()}`" for kind in name.split(",") if kind.strip())
        yield (
            f"{before}- Raises {kinds}: {_markdown(said)}" if kinds else f"{before}- Raises {_markdown(said)}"
        )


def _function(node: Function, docstring: str) -> Iterator[str]:
    doc = read(docstring)
    yield f"```python\n{signature(node)}\n```\n"
    yield f"{_prose(doc.prose)}\n"
    if details := list(_details(doc)):
        yield "\n".join(details) + "\n"
    if doc.after:
        yield f"{_prose(doc.after)}\n"


def _decorated(node: ast.ClassDef | Function, name: str) -> bool:
    return any(ast.unparse(decorator).split("(")[0] == name for decorator in node.decorator_list)


def _class(node: ast.ClassDef, docstring: str) -> Iterator[str]:
    doc = read(docstring)
    bases = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases)
    enumeration = "Enum" in bases
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    init = next((method for method in methods if method.name == "__init__"), None)
    exception = bases.endswith("Error`") or bases.endswith("Interrupt`") or "Exception" in bases
    if init is not None and not exception:
        yield f"```python\nclass {node.name}:\n{signature(init, indent='    ')}\n```\n"
        own = read(ast.get_docstring(init) or "")
        doc.sections = {**own.sections, **doc.sections}
    kind = "" if enumeration or not bases else f" ({'An' if bases[1] in 'AEIOU' else 'A'} {bases}.)"
    yield f"{_prose(doc.prose)}{kind}\n"
    fields = {
        ast.unparse(item.target): f"`{_quoted(ast.unparse(item.annotation))}`"
        + (f", by default `{_quoted(ast.unparse(item.value))}`" if item.value and _simple(item.value) else "")
        for item in node.body
        if isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith("_")
    }
    listed = [*_details(doc), *_entries(doc, "Attributes", fields)]
    said = {name.strip() for names in doc.sections.get("Attributes", {}) for name in names.split(",")}
    listed += [f"- `{name}` ({kind})" for name, kind in fields.items() if name not in said]
    for item in node.body:
        if isinstance(item, ast.Assign) and enumeration:
            listed.append(f"- `{ast.unparse(item.targets[0])}`: `{_quoted(ast.unparse(item.value))}`")
    for method in methods:
        if not method.name.startswith("_") or method.name == "__call__":
            listed += _method(method)
    if listed:
        yield "\n".join(listed) + "\n"
    if doc.after:
        yield f"{_prose(doc.after)}\n"


def _simple(default: ast.expr) -> bool:
    """Whether a default says something to a reader: ``field(…)`` and names of ours do not."""
    return not ast.unparse(default).startswith(("field(", "_"))


def _method(method: Function) -> Iterator[str]:
    doc = read(ast.get_docstring(method) or "")
    if _decorated(method, "property"):
        returns = f" (`{ast.unparse(method.returns)}`)" if method.returns else ""
        yield f"- `{method.name}`{returns}: {_inline(doc)}"
    else:
        kind = "class method " if _decorated(method, "classmethod") else ""
        yield f"- {kind}`{_call(method)}`: {_inline(doc)}"
        doc.sections["Args"] = {
            name: said for name, said in doc.sections.get("Args", {}).items() if said != "see there."
        }
    yield from _details(doc, "  ")


def _call(method: Function) -> str:
    """A method as it is called; without types where those would make it too long to read."""
    parts = _parameters(method)[1:]
    returns = f" -> {ast.unparse(method.returns)}" if method.returns else ""
    shown = f"{method.name}({', '.join(parts)}){returns}"
    if len(shown) > WIDTH:
        shown = f"{method.name}({', '.join(re.sub(r': [^=]+?( = |$)', _assigned, part) for part in parts)})"
    return _quoted(shown)


def _assigned(found: re.Match[str]) -> str:
    return "=" if found[1] else ""


def _inline(doc: Doc) -> str:
    return " ".join(_prose([*doc.prose, "", *doc.after]).split())


def _constant(node: ast.Assign | ast.AnnAssign, docstring: str) -> Iterator[str]:
    if isinstance(node, ast.AnnAssign):
        shown = f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}"
    else:
        shown = ast.unparse(node)
        if len(shown) > 1.5 * WIDTH:
            shown = ast.unparse(node.targets[0])
    yield f"`{_quoted(shown)}`" + (f"\n\n{_markdown(docstring)}\n" if docstring else "\n")


def entry(module: str, name: str) -> Iterator[str]:
    """What the page says of a name."""
    node, docstring = definition(module, name)
    yield f"#### {name}\n"
    if isinstance(node, ast.FunctionDef):
        yield from _function(node, docstring)
    elif isinstance(node, ast.ClassDef):
        yield from _class(node, docstring)
    else:
        yield from _constant(node, docstring)


def undocumented(module: str, name: str) -> tuple[str, ...]:
    """Arguments of a public function of which its docstring says nothing."""
    node, docstring = definition(module, name)
    if not isinstance(node, ast.FunctionDef) or re.search(r"[Aa]rguments (and errors )?as", docstring):
        return ()
    doc = read(docstring)
    said = {part.strip(" *") for names in doc.sections.get("Args", {}) for part in names.split(",")}
    arguments = [*node.args.args, *node.args.kwonlyargs, *([node.args.vararg] if node.args.vararg else [])]
    return tuple(argument.arg for argument in arguments if argument.arg not in said)


def reference() -> str:
    """The generated part of the page."""
    parts = []
    for module, purpose in MODULES.items():
        parts.append(f"### {module}\n\n{purpose}.\n")
        names = sorted(public(module), key=lambda name: _place(module, name))
        parts += [text for name in names for text in entry(module, name)]
    return "\n".join(parts)


def _place(module: str, name: str) -> int:
    """What one calls comes first, then what one gets, then what one catches, then the rest."""
    node, _ = definition(module, name)
    if isinstance(node, ast.FunctionDef):
        return 0
    if isinstance(node, ast.ClassDef):
        return 2 if name.endswith(("Error", "Failed", "Interrupted", "Refused")) and node.bases else 1
    return 3


def page(text: str) -> str:
    """``text``, the page, with its reference made anew."""
    guide, mark, _ = text.partition(MARK)
    if not mark:
        raise LookupError(f"{PAGE} has no line {MARK}")
    return f"{guide}{mark}\n{reference()}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
