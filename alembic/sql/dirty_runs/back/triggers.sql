-- The guards on tables that stay.
drop trigger protocol_2_identity on pgflow.runs;
drop trigger protocol_2_end on pgflow.runs;
drop trigger protocol_2_address on pgflow.step_tasks;
drop trigger protocol_2_freeze on pgflow.flows;
drop trigger protocol_2_freeze on pgflow.steps;
drop trigger protocol_2_freeze on pgflow.deps;
