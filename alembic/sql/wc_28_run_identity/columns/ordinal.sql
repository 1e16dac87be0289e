-- The number of a run among those of its action.

ALTER TABLE runs ADD COLUMN ordinal INTEGER;
