-- worker_functions: the functions or processes that workers run in, and whether to ping them.
-- Core behaviour: tables, worker_functions.

create table pgflow.worker_functions (
  function_name text not null,
  enabled boolean not null default true,
  debounce interval not null default interval '6 seconds',
  last_invoked_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  start_mode text not null default 'http',
  constraint worker_functions_pkey primary key (function_name),
  constraint worker_functions_debounce_check check (debounce >= interval '1 second'),
  constraint worker_functions_start_mode_check check (start_mode in ('http', 'process'))
);

comment on table pgflow.worker_functions is
  'What ensure_workers() keeps running; a worker registers itself here.';
comment on column pgflow.worker_functions.start_mode is
  'http: started by a request, so ensure_workers() pings it; process: starts by itself and is never pinged.';
