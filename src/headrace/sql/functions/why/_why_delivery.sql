-- The reasons of one delivery, in their order: see why. s: as _event_states shows it.
create or replace function headrace._why_delivery(q headrace.queues, s headrace.shown, t timestamptz)
returns setof headrace.reason
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    w record;
    reasons headrace.reason[];
begin
    if s.status is null then
        return query select * from headrace._why_not_delivered(q, s);
    elsif s.status = 'PROCESSING' then
        return query select * from headrace._why_in_progress(q, s, t);
    elsif s.status <> 'PENDING' then
        return query select * from headrace._why_ended(q, s);
    else
        select d.* into w
        from headrace._stored_event(s.id, s.created_at) e
        cross join lateral headrace._waiting_delivery(s.id, q.id, e.route, e.priority) d;
        reasons := array(select r from headrace._why_delayed(q, s, t) r)
                || array(select r from headrace._why_paused(q) r)
                || array(select r from headrace._why_limited(q, s, t) r)
                || array(select r from headrace._why_key(q, s) r)
                || array(select r from headrace._why_suspect(q, s, w.suspect) r)
                || array(select r from headrace._why_unhandled(q, s, t) r);
        return query select * from unnest(reasons);
        if not exists (select from unnest(reasons) r where r.code <> 'queue_draining') then
            return query select * from headrace._why_in_line(q, s, t);
        end if;
    end if;
end $$;
