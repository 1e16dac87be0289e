"""Whoever can write, as the catalogue has it: found from the bodies, without any list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pgflow_migrate import resources

if TYPE_CHECKING:
    from tests.dirty_runs.protocol import Session

_FUNCTIONS = """
select p.oid::regprocedure::text as signature, n.nspname as schema, p.proname as name, l.lanname as language,
  coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) as body
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
where n.nspname = 'pgflow'
  or (
    n.nspname not in ('pg_catalog', 'information_schema', 'pgmq', 'cron', 'net', 'realtime', 'vault')
    and n.nspname !~ '^pg_' and p.prosrc ~* 'pgflow|pgmq'
  )
order by 1
"""

_TRIGGERS = """
select t.tgname || ' on ' || c.relname as name
from pg_trigger t
join pg_class c on c.oid = t.tgrelid
join pg_namespace n on n.oid = c.relnamespace
where not t.tgisinternal and n.nspname in ('pgflow', 'pgmq')
union all
-- Foreign keys that delete or change other rows, rules, and event triggers write, too.
select k.conname || ' on ' || c.relname
from pg_constraint k
join pg_class c on c.oid = k.conrelid
join pg_namespace n on n.oid = c.relnamespace
where k.contype = 'f' and n.nspname = 'pgflow'
  and (k.confdeltype not in ('a', 'r') or k.confupdtype not in ('a', 'r'))
union all
select r.rulename || ' on ' || c.relname
from pg_rewrite r
join pg_class c on c.oid = r.ev_class
join pg_namespace n on n.oid = c.relnamespace
where r.ev_type <> '1' and n.nspname in ('pgflow', 'pgmq')
union all
select evtname::text from pg_event_trigger
"""

_LITERAL = re.compile(r"'(?:[^']|'')*'")
_DOLLARS = re.compile(r"(\$[a-z_]*\$).*?\1", re.DOTALL | re.IGNORECASE)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# "for update" and "for no key update" write nothing; "do update" follows an insert.
_DML = re.compile(
    r"\binsert\s+into\b|\bdelete\s+from\b|\bmerge\s+into\b|\btruncate\b|\bcopy\b"
    r"|(?<!for )(?<!key )(?<!do )\bupdate\s+(?!of\b|skip\b|nowait\b)[a-z_\"]",
    re.IGNORECASE,
)
_PGMQ = re.compile(
    r"\bpgmq\"?\s*\.\s*\"?(?!format_table_name|meta\b|metrics|list_queues|validate|q_|a_)[a-z_]+\"?\s*\(",
    re.IGNORECASE,
)
_CRON = re.compile(r"\bcron\"?\s*\.\s*\"?(?:schedule|unschedule|alter_job)\w*\"?\s*\(", re.IGNORECASE)
_DYNAMIC = re.compile(r"\bexecute\b", re.IGNORECASE)


def code(body: str) -> str:
    """A body in lower case without comments and text literals, white space made plain."""
    without_literals = _LITERAL.sub("''", _COMMENT.sub(" ", body))
    return re.sub(r"\s+", " ", _DOLLARS.sub("''", without_literals)).lower()


def writes_by_itself(language: str, body: str) -> bool:
    """Whether a body has a statement that changes rows, a call that does, or any dynamic statement."""
    if language not in ("sql", "plpgsql"):
        return True
    text = code(body)
    return any(sign.search(text) for sign in (_DML, _PGMQ, _CRON, _DYNAMIC))


def functions(session: Session) -> set[str]:
    """Functions that write, by themselves or by one that they call; ``name(types)``, those of pgflow bare."""
    found = session.rows(_FUNCTIONS)
    bodies = {row["signature"]: code(row["body"]) for row in found}
    names = {row["signature"]: row["name"] for row in found}
    writing = {row["signature"] for row in found if writes_by_itself(row["language"], row["body"])}
    while True:
        calls = re.compile(rf"\b(?:{'|'.join(sorted({re.escape(names[s]) for s in writing}))})\"? ?\(")
        more = {signature for signature, body in bodies.items() if calls.search(body)} - writing
        if not more:
            return {signature.removeprefix("pgflow.").replace(",", ", ") for signature in writing}
        writing |= more


def triggers(session: Session) -> set[str]:
    """Triggers, event triggers, rules, and foreign keys with an action, on tables of pgflow and PGMQ."""
    return {row["name"] for row in session.rows(_TRIGGERS)}


def cron_jobs(session: Session) -> set[str]:
    """Names of cron jobs, of pgflow's functions or any other."""
    return {row["jobname"] for row in session.rows("select jobname from cron.job")}


def shipped_helpers() -> set[str]:
    """SQL files that a database's owner may install."""
    return {f"helpers/{path.name}" for path in resources.helpers().iterdir()}
