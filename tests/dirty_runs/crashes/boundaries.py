"""Stops in front of and behind every write of a transaction, or between the statements of its functions.

Triggers that the test installs make the former, ASSERTs that it puts into the functions the latter. Each stop
draws the next number of a sequence, which no rollback gives back. At the number that the test has chosen the
session waits for a lock that the test holds; there it is killed.
"""

from __future__ import annotations

import re

from tests.dirty_runs.protocol import Session

LOCK = 4711

INSTALL = f"""
create schema stops;
create sequence stops.numbers;
create table stops.chosen (number bigint);
insert into stops.chosen values (0);
create function stops.pass() returns boolean language plpgsql as $$
begin
  if nextval('stops.numbers') = (select number from stops.chosen) then
    perform pg_advisory_xact_lock({LOCK});
  end if;
  return true;
end;
$$;
create function stops.stop() returns trigger language plpgsql as $$
begin
  perform stops.pass();
  return case when tg_op = 'DELETE' then old else new end;
end;
$$;
"""

TRIGGERS = """
select format(
  'create trigger %1$s before insert or update or delete on %3$s for each row execute function stops.stop();'
  'create trigger %2$s after insert or update or delete on %3$s for each row execute function stops.stop()',
  'aaa_stop', 'zzz_stop', c.oid::regclass
) as statement
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r'
  and (
    n.nspname = 'pgflow' and c.relname in ('runs', 'run_work', 'step_states', 'step_tasks', 'task_claims')
    or n.nspname = 'pgmq' and c.relname ~ '^[qa]_'
    or n.nspname = 'realtime'
  )
"""


def install(session: Session) -> None:
    """Put stops around every write of the runtime's tables, the queues and the events."""
    session.execute(INSTALL)
    for row in session.rows(TRIGGERS):
        session.execute(row["statement"])


OF_A_CHUNK = ("reconcile_one_run", "_v2_chunk", "_v2_dispatch_step")
FUNCTIONS = """
select proname as name, pg_get_functiondef(oid) as text
from pg_proc
where pronamespace = 'pgflow'::regnamespace and proname = any (%s)
"""


def install_between_statements(session: Session) -> None:
    """Put a stop in front of the first statement of each function of a chunk, and behind every statement."""
    session.execute(INSTALL)
    functions = session.rows(FUNCTIONS, list(OF_A_CHUNK))
    assert len(functions) == len(OF_A_CHUNK)
    for function in functions:
        session.execute(with_stops(function["text"]))


def with_stops(text: str) -> str:
    """A function in PL/pgSQL with its stops: ASSERT changes neither FOUND nor the count of rows."""
    head, begin, statements = text.partition("\nbegin\n")
    body, end, tail = statements.rpartition("\nend;\n")
    assert begin
    assert end
    stopped = re.sub(r";$", "; assert stops.pass();", body, flags=re.M)
    return f"{head}{begin}assert stops.pass();\n{stopped}{end}{tail}"


def choose(session: Session, number: int) -> None:
    """Count from the beginning, and stop at ``number``; 0 never stops."""
    session.execute("update stops.chosen set number = %s", number)
    session.execute("select setval('stops.numbers', 1, false)")


def passed(session: Session) -> int:
    """How many stops were met since the last choice."""
    number: int = session.value("select case when is_called then last_value else 0 end from stops.numbers")
    return number
