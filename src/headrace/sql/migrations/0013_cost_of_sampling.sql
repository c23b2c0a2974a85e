-- Seconds that a look at all queues took, of those every five seconds; null: not known. See sample_history.
alter table headrace.samplings add column took float8;
