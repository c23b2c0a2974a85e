select headrace_partman.hand_over(parent) from unnest('{events,outcomes,errors}'::text[]) parent;
