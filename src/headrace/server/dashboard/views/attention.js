// Where a finding leads: to the view that helps to solve it.

const PLACES = {
  limit_reached: ({ queue }) => [["queues", queue ?? "main"]],
  waiting_long: ({ queue }) => [["events"], { queue, status: "PENDING" }],
  unhandled: ({ queue, about }) => [["events"], { queue, status: "PENDING", types: about.type }],
  queue_full: ({ name }) => [["queues", name]],
  above_watermark: ({ name }) => [["queues", name]],
  paused: ({ name }) => [["queues", name]],
  draining: ({ name }) => [["queues", name]],
  failing: ({ queue }) => [["overview"], { queue }],
  dead_letters: ({ queue, about }) => [["dead"], { queue, group: about.fingerprint }],
  released_often: ({ queue, about }) => [["events"], { queue, types: about.type }],
  node_lost: () => [["workers"]],
  orphaned: ({ queue }) => [["events"], { queue, status: "PROCESSING" }],
  schedule_late: () => [["schedules"]],
  schedule_unplanned: () => [["schedules"]],
};

/** The address of the view for a finding; null if none can help. */
export function target(page, { code, queue, about }) {
  const its = { name: queue, queue: queue === "main" ? null : queue, about: about ?? {} };
  const place = PLACES[code]?.(its);
  return place ? page.link(...place) : null;
}
