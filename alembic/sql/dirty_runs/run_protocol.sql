-- Which protocol a run speaks, and for protocol 2 the identity of the definition that it began with. Both are for good.
-- Every run that exists, and every run that start_flow() makes, speaks protocol 1: the default is a constant, so no row
-- is rewritten.
alter table pgflow.runs
  add column protocol_version smallint not null default 1
    constraint protocol_version_is_known check (protocol_version in (1, 2)),
  add column definition_sha256 bytea,
  add constraint definition_identity_matches_protocol check (
    case protocol_version
      when 1 then definition_sha256 is null
      else definition_sha256 is not null and octet_length(definition_sha256) = 32
    end
  ),
  -- Bounds of the contract: input_bytes, run_output_bytes.
  add constraint protocol_2_input_is_bounded check (protocol_version = 1 or octet_length(input::text) <= 65536),
  add constraint protocol_2_output_is_bounded
    check (protocol_version = 1 or output is null or octet_length(output::text) <= 65670);

-- Empty where nobody uses protocol 2; says so at no cost.
create index idx_runs_protocol_2 on pgflow.runs (flow_slug) where protocol_version = 2;

-- A start asks whether another flow uses a queue, too, without reading all definitions.
create index idx_steps_queue_name on pgflow.steps (queue_name);

comment on column pgflow.runs.protocol_version is
  '1: callbacks carry the run on (start_flow). 2: the bounded A -> B protocol (start_flow_v2). Never changed.';
comment on column pgflow.runs.definition_sha256 is
  'Protocol 2: SHA-256 of the canonical definition that the run began with. Never changed.';
