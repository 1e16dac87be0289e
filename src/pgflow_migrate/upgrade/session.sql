-- Settings of the upgrade's transaction; nothing outlives it. A hosted server's limits for ordinary statements
-- would stop a rewrite half way. transaction_timeout exists from PostgreSQL 17 on.
select pg_catalog.set_config(s.name, '0', true)
from pg_catalog.pg_settings s
where s.name in ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout');

-- How names and literals are spelt and read, whatever the role's, the database's or the session's settings.
select pg_catalog.set_config('quote_all_identifiers', 'off', true),
  pg_catalog.set_config('standard_conforming_strings', 'on', true);

-- With off, the first read of a table that has policies would end with an error. The preflight names them all.
select pg_catalog.set_config('row_security', 'on', true);
