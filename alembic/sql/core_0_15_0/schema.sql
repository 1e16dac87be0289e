-- The schema of every pgflow object.
-- Why no grants: pgflow issues none; its owner decides who may use it.

create schema pgflow;
