-- Who may do what only one at a time may do: a row for each such task, which is locked (`for update`) and never updated. An advisory lock
-- would be anybody's: every role that may connect can take it, and keep it. See try_lock.
--     clock, counts, fill, horizon, states, unhandled, upkeep
--                              a part of tick
--     state QUEUE              the saved state of a queue
--     depth QUEUE              a queue that has a limit is being counted
--     suspect QUEUE WORKER     a worker is being given a suspect
--     erase EVENT              an event is being erased
-- Those with a number are made when they are wanted, and the upkeep removes them.
create table headrace.locks (
    name text collate "C" primary key
);
insert into headrace.locks (name)
select unnest('{clock,counts,fill,horizon,states,unhandled,upkeep}'::text[]);
