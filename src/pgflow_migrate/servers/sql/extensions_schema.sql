-- Supabase keeps the extensions that do not insist on a schema of their own in this one.

create schema if not exists extensions;
grant usage on schema extensions to anon, authenticated, service_role;
