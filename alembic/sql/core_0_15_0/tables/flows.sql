-- flows: a row for each flow definition.
-- Core behaviour: tables, flows.

create table pgflow.flows (
  flow_slug text not null,
  opt_max_attempts integer not null default 3,
  opt_base_delay integer not null default 1,
  opt_timeout integer not null default 60,
  created_at timestamptz not null default now(),
  constraint flows_pkey primary key (flow_slug),
  constraint slug_is_valid check (pgflow.is_valid_slug(flow_slug)),
  constraint opt_max_attempts_is_nonnegative check (opt_max_attempts >= 0),
  constraint opt_base_delay_is_nonnegative check (opt_base_delay >= 0),
  constraint opt_timeout_is_positive check (opt_timeout > 0)
);

comment on table pgflow.flows is
  'Flow definitions. opt_max_attempts counts all attempts; opt_base_delay and opt_timeout are seconds.';
