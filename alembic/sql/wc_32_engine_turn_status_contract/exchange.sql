-- The new table takes the old one's place and name. To drop a table is to delete its rows first, which would
-- take the operations of every turn along (on delete cascade): so who refers to a turn is noted, forgotten,
-- and put back.

create temp table turns_of_action_entries as
  select id, engine_turn_id from action_entries where engine_turn_id is not null;
create temp table turns_of_operations as
  select id, engine_turn_id from operations where engine_turn_id is not null;
update action_entries set engine_turn_id = null where engine_turn_id is not null;
update operations set engine_turn_id = null where engine_turn_id is not null;

drop table engine_turns;
alter table engine_turns_new rename to engine_turns;

update action_entries set engine_turn_id = (
  select noted.engine_turn_id from turns_of_action_entries noted where noted.id = action_entries.id
) where id in (select id from turns_of_action_entries);
update operations set engine_turn_id = (
  select noted.engine_turn_id from turns_of_operations noted where noted.id = operations.id
) where id in (select id from turns_of_operations);
drop table turns_of_action_entries;
drop table turns_of_operations;
