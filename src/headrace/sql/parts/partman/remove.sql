select headrace_partman.take_back(parent) from unnest('{events,outcomes,errors}'::text[]) parent;
