/*
  HEADRACE, THE ENGINE

  The files of this folder make every table and type, in the order of their names:

      0_essay                 how the engine works: this page
      1_namespaces_queues     namespaces, roles bound to them, queues, routes and their bindings
      2_events                the number line, the events, the keys that make a publish repeatable
      3_places                where a delivery stands: ready, delayed, leased, dead
      4_log                   how attempts ended, and the horizon up to which the log is complete
      5_state_transfer        saved states and checkpoints; queues that leave and enter as files
      6_nodes_schedules       nodes, recovery from dead ones, events that the clock publishes
      7_administration        settings, tokens, administration log, upkeep, locks, parts
      8_statistics            counts, totals, and the history behind the charts
      9_types                 the rows that functions pass to each other and return

  PLACES AND MOVES

  A state is a place. No table here has a status column of deliveries: the table that holds a
  delivery's row says where the delivery stands, and every transition is a statement that moves the
  row from one table to another. A move is one transaction, so a crash at any moment leaves each
  delivery in exactly one place.

      publish ──► events          the event, stored once; its payload is never copied while it lives
          │
          ├─────► ready           deliveries that may be claimed now: one per queue and event
          ├─────► keyed           the same with an ordering key: one at a time, in their order
          └─────► delayed         deliveries that may not be claimed before due_at
                    │  ▲
              tick  ▼  │  finish(fail): backoff
              ready, keyed
                    │
              poll  ▼
                  leases          one row per claim: worker, end, arrays of its deliveries
                  held            one row per delivery that is claimed on its own
                    │
            finish  ▼
                  outcomes        how attempts ended, one row per batch and bucket of ids
                  errors          what went wrong, one row each
                  dead_letters    deliveries that used up their attempts, with their bodies

  The claim is the centre. It deletes narrow rows from `ready` and writes ONE row to `leases`,
  however many deliveries it takes; the finish deletes that row and writes one or two rows to
  `outcomes`. Payloads do not move.

  Packs. Deliveries that were published together lie in `ready` together: a pack is one row for up
  to 128 fresh deliveries. A claim takes it whole, or opens it if it wants fewer. So an event of a
  batch costs hardly more WAL from its publish to its end than a bare row does.

  A BUS

  Routes. An event is stored once and delivered to every queue of its namespace that takes its type
  and tags. The digest of type and tags is the event's route. Which queues take a route is worked
  out once per version of the namespace's queues (`bindings`), and an event remembers the version
  under which it was published. So a queue that begins in the past gets the events before it once,
  by tick (`chores`), and every later event by its publish.

  Ordering keys. A delivery with an ordering key waits in `keyed`, and a token in `ready` says that
  its turn may have come. A claim that meets a token takes the key's first delivery, unless one of
  the key is in progress (`active`): then the claim drops the token, because the end of that
  delivery leaves another.

  Idempotency keys. `idempotency` remembers for a week which event was published under a caller's
  key, so that a publisher that is not sure whether its publish arrived may repeat it.

  Unique keys. `unique_keys` remembers the last event of each; while one of its deliveries is
  unfinished, a publish of the key gets its id. Nothing is done when it ends: the next publish of
  the key looks.

  Debounce. `debounce_keys` remembers the last event of each key in a queue. The next publish of the
  key takes its delivery out of the place where it waits, if it was never claimed, and puts the new
  event into `delayed` until it has been quiet for long enough.

  Limits. A queue may limit its groups (the values of a tag, say): so many at once, so many starts in
  a time. Type and tags make the route, so a claim knows which groups a route is in, and passes whole
  routes by whose groups are full, without a look at what waits there. A claim locks the row of each
  group that it takes from (`limit_groups`), counts the slots that are taken (`limit_slots`) and takes
  its own. The end of a delivery gives nothing back: a slot is taken as long as its delivery is in the
  claim that took it, which the places tell, whatever ended the claim.

  CLAIMS

  Leases. A claim lasts until its lease ends; a heartbeat extends it. There are two ways to hold
  one:
    * A batch lives as arrays in its lease. That is cheap, but its members share the lease row: a
      finish locks it, so a batch must not be finished inside a long transaction.
    * `each`: every delivery gets a row of its own in `held`. Its finish deletes that row and never
      touches `leases`, which the heartbeat updates: no finish waits for a sibling or a heartbeat,
      at any isolation level. Transactional handlers, HTTP workers and suspects are held.

  Fencing. (event, queue, attempt) is the fencing token. The claim counts the attempt in its
  own commit, before any handler runs. A finish must still find that attempt in `held`, or
  unfinished in `leases`, in the very statement that moves it; so there is one valid holder at any
  moment, and one end. The lease token, which nobody can guess, proves that the claim is the
  caller's.

  Interruptions. cancel, reset and erase take a delivery out of a claim while its handler runs. They
  leave a row in `interruptions`, and the next heartbeat of the claim tells the worker which of its
  deliveries are gone. A node is also notified, on a channel of its own start, so that it sends that
  heartbeat at once: see _interrupt. The notification is a hint; the heartbeat decides.

  Suspects. When a lease runs out, nothing tells what killed the worker: one of its deliveries, one
  of another lease of the same process, or something outside. The deliveries come back as suspects,
  uncharged. A suspect is claimed alone, one at a time by a worker, and only a suspect is charged a
  crash. So the poisonous event is found after max(1, max_retries) + 1 starts and its neighbours
  live. A lenient lease (a visibility timeout) makes no suspects: its deliveries come back as they
  were.

  Recovery. A node's process holds an advisory lock while it is connected (`instances`). A new
  process of the same node that finds the lock free takes the dead one's claims over at once,
  instead of waiting for the ends of their leases. The table `nodes` is for people and for the
  question which types are handled; recovery never depends on it.

  Wake-ups. PostgreSQL lets one transaction at a time commit a notification. So whoever adds work
  notifies only a session that sleeps on the queue at that moment, and a sleeper covers the race: it
  polls again 5, 50 and 500 ms after it fell asleep. Nothing depends on the hint. See _wake.

  THE LOG

  One number line. `headrace.ids` numbers events, claims and outcomes, and gives `ready` its order.
  Ids grow; they are not dense. The number of a log entry is (id of its row) * 1024 + (position in
  it).

  Shards. Several databases may share the number line: shard K of S draws the numbers that leave K
  when they are divided by S, its stride. So every number names its shard, for ever. Whatever counts
  neighbours counts places on the database's own line: place(id) is id / S, and the id itself in a
  database that is the only one. A database that was the only one, and joins as shard 0, keeps its
  numbers, up to the mark: they are their own places, and the others follow.

  The horizon. Numbers are drawn inside transactions, and transactions commit in another order. A
  reader that took everything it saw would pass entries that commit a moment later. So nothing
  above the horizon is told: the number below which every transaction that drew a number is over
  (`horizons`). Promotion and restore begin a new life of the database, and a reader's cursor
  carries the life that it belongs to. See _advance_horizon, _resumed_reading and log_since.

  STATE AND TRANSFER

  `event_queue_state` has each queue's last saved state and `queue_checkpoints` its low-water
  marks, for people, programs and other systems. They are snapshots, never the authority: the
  places are.

  A queue leaves a database as a file and enters another. An import is one transaction of many
  calls; a deferred foreign key (`open_imports`) refuses the commit until the last call has been
  made. `imported` knows every event that came by file, so a second import changes nothing.

  THE CLOCK

  `tick` does all that is due: it moves delayed deliveries, ends expired leases, fires schedules,
  fills and clears queues, folds counts, saves states, and once an hour does the upkeep. Any number
  of processes may call it. SQL has no calendar: a client works the instants of a schedule out
  ahead (`scheduled_tasks.next_fires`), any tick fires them, and the key of `fires` makes each fire
  once.

  Months. events, outcomes and errors are partitioned by month. Upkeep makes months ahead and
  retires old ones; bodies of events that still live move to `events_carried` before their month
  goes.

  Statistics. Each call appends to `counts` and updates nothing: publishers must not wait for each
  other. tick folds the rows into minutes (`stats`), five seconds (`moments`) and `totals`.

  LOCKS

  A task that one session at a time may do has a row in the table `locks`: see sql/locks.md, which
  lists all of them and the numbers of the advisory locks. Any role that may connect can take an
  advisory lock, so advisory locks are hints only, and no call waits for one.

  TYPES

  A composite type stands for a row that one function hands to another or to a client. Functions
  write such rows by position, so an attribute is added at the end. The same goes for columns:
  `ready` is written as a row by position, and unions take all columns of events and
  events_carried.

  RULES THAT EVERY FUNCTION KEEPS

    * ready, keyed, delayed and held are insert-and-delete only. The claim's `ctid = any(...)`
      delete is safe there and nowhere else: it can take a row twice that is updated.
    * Lock order: leases by id, then held by (event, queue), then inserts. poll and tick never
      wait: they skip what is locked, groups with limits too. Only claims lock groups.
    * A call reads the clock once, from headrace._now(). now() would give a lease that is born
      expired in a long transaction.
    * publish and finish draw ids only after their transaction has an xid, and no call draws one
      before it holds a row-exclusive lock on a table of ours, so that a reader can tell which ids
      may still appear.
    * No DDL outside migrate and upkeep: it would queue publishers behind readers.
    * A look-up that spans places is one statement, so that it sees a delivery on the move once.
      "Ended" needs positive evidence: an outcome or a dead letter, never mere absence.

  WHERE EVERYTHING IS

  Each line says what the rows of a table are; then which functions write them. For a type it says
  what a value stands for; then which functions return it. tick removes the rows that are too old.

  1_namespaces_queues
      namespaces          one row per namespace; create_namespace writes it
      bound_roles         roles that may work in some namespaces only; bind_role writes them
      queues              one row per queue, with its settings; create_queue and change_queue
      listed_queue        a type: a queue with its settings and depth; queue and queues return it
      chores              queues that tick must fill or clear; create_queue and delete_queue
      depths              recent depths of queues with a limit; _store_depth appends them
      routes              type and tags of each route; _batch_headers adds new ones
      bindings            the queues that take a route, by version; _batch_headers works them out
      unhandled           types that wait while no node handles them; _tick_unhandled

  2_events
      events              one row per event; publish_one, _store_batch and _store_alike
      events_default      events of a month that has no partition; PostgreSQL routes them here
      events_carried      live events of retired months; _carry_over moves them here
      marks               the last id of each day, to find the month of an id; _store_id_mark
      shard               which shard this database is, in one row; _become_shard
      slots               the shard that is the home of each slot of keys; give_slots and accept_slots
      idempotency         the event of each idempotency key; _take_idempotency_keys
      debounce_keys       the last event of each debounce key; _enqueue_debounced
      unique_keys         the last event of each unique key; _take_unique_keys, _take_back_unique_keys

  3_places
      ready               deliveries that may be claimed; publish, tick and finish put them here
      keyed               deliveries that wait for the turn of their ordering key; the same calls
      active              ordering keys that have a delivery in progress; _claim_key adds them
      delayed             deliveries that are not due yet; publish and finish put them here
      leases              one row per claim; _claim adds it, finish and tick remove it
      held                one row per delivery that is claimed on its own; _claim adds it
      interruptions       deliveries that were taken out of a claim; _interrupt adds them
      limit_groups        groups with limits that were claimed from; _make_limit_groups
      limit_slots         slots that claims took in groups; _take_slots and _count_slots
      limit_keys          ordering keys that wait for their rate; _limited_key_verdict
      limit_changes       queues whose limits have just changed; _limits_changed
      progress            data that an attempt leaves for the next one; save_progress and finish
      dead_letters        deliveries that are dead; _dead_letter adds them

  4_log
      outcomes            how attempts ended, one row per batch; _record_completed and _settle
      errors              one row per failure; _settle adds it
      outcomes_default    outcomes of a month that has no partition
      errors_default      errors of a month that has no partition
      horizons            the horizon of each life of the database; _horizon stores it
      sent                events that pgmq's functions sent and core has not recorded; pgmq's _send

  5_state_transfer
      event_queue_state   the last saved state of each queue; _store_state
      queue_checkpoints   the low-water mark of each queue over time; _store_state
      saved_states        what the last saved state looked like, in short; _save_states
      identity            the id of this database, for exports; the schema makes its only row
      imports             one row per imported file; _end_import
      open_imports        imports in progress; _begin_import adds them, _end_import removes them
      imported            the id here of each imported event; _import_events

  6_nodes_schedules
      nodes               one row per node; register_node, and touch_node_heartbeat
      instances           processes of nodes that have not said goodbye; _store_instance
      recoveries          claims that were taken over from a dead process; recover
      scheduled_tasks     schedules and their next instants; schedule_task and plan_task
      fires               the instants that were fired; _fire_due
      busy_ticks          the times at which ticks left schedules due; _tick_schedules

  7_administration
      settings            settings that differ from their defaults; configure
      api_tokens          digests of the tokens of the HTTP API; create_token and revoke_token
      admin_log           one row per administrative call that changed something; _log_action
      upkeep              when each upkeep task is due next, and its last error; _upkeep
      clock_readings      recent times of the server's clock; _read_clock
      locks               one row per task that one session at a time may do; _make_lock
      optional            parts that are installed beside the schema; the installer

  8_statistics
      counts              one row per call, not folded yet; publish, finish and the moves
      stats               counts by the minute; _fold_counts
      totals              the sum of all counts of a queue; _fold_counts
      moments             counts by five seconds; _fold_counts
      history             depth and latency of each queue over time; _sample_history
      samplings           the times at which the queues were measured; _sample_history

  9_types
      hint                where the next claim starts in a route; _sweep and _advance_hint
      haul                the rows that a claim took out of `ready`; _claim_route and _claim_packs
      lot                 the deliveries of a claim, column by column; _claim
      membership          that a route is in a group with a limit; _limited_groups
      turn                where a claim takes deliveries next; _turns
      claimed             a delivery that a worker gets; poll
      alike               a batch of deliveries that differ in little; poll_batch
      claimed_for         a delivery that one of several workers gets; poll_for
      share               a worker's part of a claim for several; _share_claim
      taken               a delivery on its way between two places; _take_held, _take_batched
      verdict             the result of one item of a finish; finish and report
      head                the common fields of the events of a batch; _batch_headers
      arrival             an event of a file that is being imported; _checked_arrivals
      wanted              a checked search for events; _checked_filter
      shown               an event and the state of its delivery; event, events and find_events
      letter              a dead letter; dead_letter and dead_letters
      listed_task         a schedule; schedules and schedule_task
      reason              why a delivery is not running; why
      finding             a condition that needs attention; attention
      horizon             the ids that can still appear; _horizon and _advance_horizon
      reading             where a reader of the log or of the events stands; _resumed_reading
      low_water           how far a queue has come; _measure_low_water
*/
