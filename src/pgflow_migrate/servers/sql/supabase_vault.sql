-- Stand-in for Supabase Vault: the same tables and functions, but a secret is only encoded, not encrypted.
-- Keep no real secret in it. Rights are the extension's owner's alone, as in Vault.

-- As an extension the schema is there already: the control file names it.
do $schema$
begin
  if to_regnamespace('vault') is null then
    create schema vault;
  end if;
end
$schema$;

create table vault.secrets (
  id uuid primary key default gen_random_uuid(),
  name text,
  description text not null default '',
  secret text not null,
  key_id uuid,
  nonce bytea,
  created_at timestamptz not null default current_timestamp,
  updated_at timestamptz not null default current_timestamp
);

create unique index secrets_name_idx on vault.secrets (name) where name is not null;

create view vault.decrypted_secrets as
select
  s.id,
  s.name,
  s.description,
  s.secret,
  convert_from(decode(s.secret, 'base64'), 'UTF8') as decrypted_secret,
  s.key_id,
  s.nonce,
  s.created_at,
  s.updated_at
from vault.secrets as s;

create function vault.create_secret(
  new_secret text,
  new_name text default null,
  new_description text default '',
  new_key_id uuid default null
)
returns uuid
language sql
as $$
  insert into vault.secrets (secret, name, description, key_id)
  values (encode(convert_to($1, 'UTF8'), 'base64'), $2, $3, $4)
  returning id;
$$;

create function vault.update_secret(
  secret_id uuid,
  new_secret text default null,
  new_name text default null,
  new_description text default null,
  new_key_id uuid default null
)
returns void
language sql
as $$
  update vault.secrets as s set
    secret = coalesce(encode(convert_to($2, 'UTF8'), 'base64'), s.secret),
    name = coalesce($3, s.name),
    description = coalesce($4, s.description),
    key_id = coalesce($5, s.key_id),
    updated_at = current_timestamp
  where s.id = $1;
$$;
