-- Types that wait in a queue though no node handles them, in namespaces that dead-letter such events. tick looks; since:
-- the first of an unbroken row of looks that found it so. When nobody has looked for a while, the row is broken: after an outage
-- the first tick may well be there before the first node.
create table headrace.unhandled (
    queue   int not null,
    type    text collate "C" not null,
    since   timestamptz not null,
    seen_at timestamptz not null,
    primary key (queue, type)
);

-- How long a type must have been unhandled.
alter table headrace.namespaces add column unhandled_after interval not null default '5 minutes';
