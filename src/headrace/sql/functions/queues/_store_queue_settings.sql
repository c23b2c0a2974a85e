-- Checks and stores settings of a queue, by their own names or those of the state document; the
-- caller has locked its namespace. See change_queue.
create or replace function headrace._store_queue_settings(q headrace.queues, settings jsonb) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    made headrace.queues;
begin
    settings := headrace._plain_settings(settings);
    perform headrace._raise_problem(headrace._queue_problem(settings), 0);
    update headrace.queues u set
        types = case when settings ? 'types' then headrace._string_set(settings -> 'types') else u.types end,
        tags = case when settings ? 'tags' then headrace._string_set(settings -> 'tags') else u.tags end,
        all_tags = case when settings ? 'all_tags' then coalesce((settings ->> 'all_tags')::boolean, false)
                        else u.all_tags end,
        takes = case when settings ? 'takes' then coalesce((settings ->> 'takes')::boolean, true) else u.takes end,
        max_retries = case when settings ? 'max_retries' then coalesce((settings ->> 'max_retries')::smallint, 3)
                           else u.max_retries end,
        backoff = case when settings ? 'backoff'
                       then coalesce(nullif(settings -> 'backoff', 'null'), '{"kind": "fixed", "delay": 300}')
                           else u.backoff end,
        max_queue_depth = case when settings ? 'max_queue_depth' then (settings ->> 'max_queue_depth')::int
                               else u.max_queue_depth end,
        high_watermark = case when settings ? 'high_watermark' then (settings ->> 'high_watermark')::int
                              else u.high_watermark end,
        batch_size = case when settings ? 'batch_size' then (settings ->> 'batch_size')::int else u.batch_size end,
        processing_interval = case when settings ? 'processing_interval'
                                   then coalesce((settings ->> 'processing_interval')::int, 1000)
                                       else u.processing_interval end,
        persistence_threshold = case when settings ? 'persistence_threshold'
                                     then (settings ->> 'persistence_threshold')::int else u.persistence_threshold end,
        require_lease_token = case when settings ? 'require_lease_token'
                                   then coalesce((settings ->> 'require_lease_token')::boolean, false)
                                       else u.require_lease_token end,
        "order" = case when settings ? 'order' then coalesce(settings ->> 'order', 'fair') else u."order" end,
        lease = case when settings ? 'lease' then make_interval(secs => (settings ->> 'lease')::float8)
                     else u.lease end,
        limits = case when settings ? 'limits' then headrace._plain_limits(settings -> 'limits') else u.limits end,
        fair_by = case when settings ? 'fair_by' then nullif(settings -> 'fair_by', 'null') else u.fair_by end,
        aging = case when settings ? 'aging' then make_interval(secs => (settings ->> 'aging')::float8)
                     else u.aging end,
        max_snoozes = case when settings ? 'max_snoozes' then (settings ->> 'max_snoozes')::int else u.max_snoozes end,
        metadata = case when settings ? 'metadata' then coalesce(nullif(settings -> 'metadata', 'null'), '{}')
                        else u.metadata end
    where u.id = q.id
    returning * into made;
    if made.high_watermark > made.max_queue_depth then
        raise exception using errcode = 'QU001',
            message = format('the high_watermark of a queue, %s, is not above its max_queue_depth, %s',
                             made.high_watermark, made.max_queue_depth);
    end if;
    if made."order" = 'oldest' and (made.fair_by is not null or made.aging is not null) then
        raise exception using errcode = 'QU001',
            message = 'a queue of the order oldest has no fair_by and no aging: its deliveries take no turns';
    end if;
    if made.limits is distinct from q.limits then
        perform headrace._limits_changed(made);
    end if;
    if made.persistence_threshold <> coalesce(q.persistence_threshold, 0) then
        -- from now on ticks look at the queue every second
        update headrace.upkeep u set next_at = headrace._now() where u.task = 'states';
    end if;
    if coalesce(made.max_queue_depth, made.high_watermark) is null then
        delete from headrace.depths d where d.queue = made.id;
    end if;
    perform headrace._queues_changed(
        made.namespace, (q.takes, q.types, q.tags, q.all_tags) is distinct from (made.takes, made.types, made.tags,
            made.all_tags));
end $$;
