-- What was installed beside this schema, on request: see the folders of sql/optional. migrate keeps it up to date.
create table headrace.optional (
    name         text primary key,
    digest       text not null,         -- of its files
    declarations jsonb not null,        -- as in headrace.release
    installed_at timestamptz not null
);
