-- Stand-in for pg_cron 1.6: jobs are recorded and never run. Signatures, the replacement of a job by its
-- name, the row security and the errors are pg_cron's; the functions run as their caller, as jobs belong
-- to whoever schedules them.

create schema cron;

create sequence cron.jobid_seq;
create sequence cron.runid_seq;

create table cron.job (
  jobid bigint primary key default nextval('cron.jobid_seq'),
  schedule text not null,
  command text not null,
  nodename text not null default 'localhost',
  nodeport integer not null default coalesce(inet_server_port(), current_setting('port')::integer),
  database text not null default current_database(),
  username text not null default current_user,
  active boolean not null default true,
  jobname text,
  constraint jobname_username_uniq unique (jobname, username)
);

create table cron.job_run_details (
  jobid bigint,
  runid bigint primary key default nextval('cron.runid_seq'),
  job_pid integer,
  database text,
  username text,
  command text,
  status text,
  return_message text,
  start_time timestamptz,
  end_time timestamptz
);

alter table cron.job enable row level security;
create policy cron_job_policy on cron.job using (username = current_user);
alter table cron.job_run_details enable row level security;
create policy cron_job_run_details_policy on cron.job_run_details using (username = current_user);

-- The schema itself is granted to nobody, as in pg_cron: an administrator grants usage on it.
grant select, insert, update, delete on cron.job to public;
grant select, delete on cron.job_run_details to public;
grant usage on sequence cron.jobid_seq to public;

create function cron._check_schedule(schedule text)
returns void
language plpgsql
as $$
begin
  -- Five fields, a number of seconds, or one of cron's words.
  if $1 !~* '^\s*([0-9*/,$-]+\s+){2}([0-9*/,$-]+)\s+[0-9a-z*/,-]+\s+[0-9a-z*/,-]+\s*$'
    and $1 !~* '^\s*([1-9]|[1-5][0-9])\s+seconds?\s*$'
    and $1 !~* '^\s*@(yearly|annually|monthly|weekly|daily|midnight|hourly|reboot)\s*$'
  then
    raise exception 'invalid schedule: %', $1 using
      errcode = 'invalid_parameter_value',
      hint = 'Use cron format (e.g. 5 4 * * *), or interval format ''[1-59] seconds''';
  end if;
end
$$;

create function cron.schedule(schedule text, command text)
returns bigint
language plpgsql
as $$
declare
  v_id bigint;
begin
  perform cron._check_schedule($1);
  insert into cron.job (schedule, command) values ($1, $2) returning jobid into v_id;
  return v_id;
end
$$;

create function cron.schedule(job_name text, schedule text, command text)
returns bigint
language plpgsql
as $$
declare
  v_id bigint;
begin
  if $1 is null then
    raise exception 'job_name can not be NULL' using errcode = 'invalid_parameter_value';
  end if;
  perform cron._check_schedule($2);
  insert into cron.job (jobname, schedule, command) values ($1, $2, $3)
  on conflict on constraint jobname_username_uniq
    do update set schedule = excluded.schedule, command = excluded.command
  returning jobid into v_id;
  return v_id;
end
$$;

create function cron.alter_job(
  job_id bigint,
  schedule text default null,
  command text default null,
  database text default null,
  username text default null,
  active boolean default null
)
returns void
language plpgsql
as $$
begin
  if $2 is not null then
    perform cron._check_schedule($2);
  end if;
  update cron.job as j set
    schedule = coalesce($2, j.schedule),
    command = coalesce($3, j.command),
    database = coalesce($4, j.database),
    username = coalesce($5, j.username),
    active = coalesce($6, j.active)
  where j.jobid = $1;
  if not found then
    raise exception 'Job % does not exist or you don''t own it', $1 using errcode = 'internal_error';
  end if;
end
$$;

create function cron.unschedule(job_id bigint)
returns boolean
language plpgsql
as $$
begin
  delete from cron.job where jobid = $1;
  if not found then
    raise exception 'could not find valid entry for job ''%''', $1 using errcode = 'internal_error';
  end if;
  return true;
end
$$;

create function cron.unschedule(job_name text)
returns boolean
language plpgsql
as $$
begin
  delete from cron.job as j where j.jobname = $1 and j.username = current_user;
  if not found then
    raise exception 'could not find valid entry for job ''%''', $1 using errcode = 'internal_error';
  end if;
  return true;
end
$$;
