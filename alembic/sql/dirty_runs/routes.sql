-- A start asks whether another flow uses a queue, too, without reading all definitions.
create index idx_steps_queue_name on pgflow.steps (queue_name);
