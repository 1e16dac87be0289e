-- Let functions name objects that do not exist yet, or never will on this server.
-- Why: the files run in name order, so callers come before what they call; and SQL functions name
--   pg_cron, pg_net and Vault, which a plain PostgreSQL server lacks.

set local check_function_bodies = off;
