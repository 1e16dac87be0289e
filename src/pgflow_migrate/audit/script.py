"""The copyable audit script, composed around the very text that the upgrade's preflight runs.

python -m pgflow_migrate.audit.script > audits/0.16.0.sql
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from pgflow_migrate import resources

RELEASE = "0.16.0"
CURSOR = "pgflow_migrate_findings"

BEGIN = "begin transaction isolation level repeatable read read only;"
# The search_path before the block, because it decides on the block's declarations, too. Limits for ordinary
# statements would end the audit of a large database half way; transaction_timeout is PostgreSQL 17's.
SETTINGS = """\
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '5s';
set local statement_timeout = 0;
do $$
begin
  perform set_config(s.name, '0', true) from pg_settings s where s.name = 'transaction_timeout';
end;
$$;"""
FETCH = f"fetch all from {CURSOR};"
CLOSE = f"close {CURSOR};"
ROLLBACK = "rollback;"

_HEAD = f"""\
-- Audit of a pgflow {RELEASE} database (0.15.x too) before its upgrade to queue identity.
-- Paste all of it at once into psql, Supabase's SQL editor or any other client: it returns a row for each
-- finding. It reads a snapshot, changes nothing and creates nothing.
--
-- Composed by pgflow-migrate (make audits). The block between BEGIN and FETCH is the upgrade's own preflight.
"""

_FIRST_MD5 = re.compile(r"(stock_prune_md5s constant text\[\] := array\[\n)")


def compose(stock_prune_md5s: Collection[str] = ()) -> str:
    """The whole script.

    Args:
        stock_prune_md5s: md5 sums of more bodies of the pruning helper that count as the documented one.
    """
    block = findings_block(stock_prune_md5s)
    return "\n".join([_HEAD + BEGIN, SETTINGS, "", block, FETCH, ROLLBACK, ""])


def findings_block(stock_prune_md5s: Collection[str] = ()) -> str:
    """The DO block that opens the cursor; see :func:`compose`.

    Raises:
        ValueError: a sum is not 32 hexadecimal digits.
    """
    for md5 in stock_prune_md5s:
        if not re.fullmatch("[0-9a-f]{32}", md5):
            raise ValueError(f"not an md5 sum: {md5!r}")
    text = (resources.revision_sql("queue_identity") / "preflight_findings.sql").read_text(encoding="utf-8")
    added = "".join(f"    '{md5}',\n" for md5 in stock_prune_md5s)
    return _FIRST_MD5.sub(lambda match: match[0] + added, text, count=1)


def committed() -> Path:
    """Where the composed script is kept."""
    return resources.audits() / f"{RELEASE}.sql"


if __name__ == "__main__":
    print(compose(), end="")
