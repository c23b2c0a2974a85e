// Where a finding leads: to the place at which one can do something about it.

const PLACES = [
  [/dead/, ["dead"]],
  [/node|worker|handle/, ["workers"]],
  [/schedule/, ["schedules"]],
];

/** The address of the place that a finding is about, or null. */
export function target(page, { code, queue, namespace, about }) {
  const its = queue && queue !== "main" ? queue : null;
  const inNamespace = { ...page, namespace: namespace ?? page.namespace };
  const link = (parts, params = {}) => page.link.call(inNamespace, parts, params);
  if (about?.event_id) return link(["events", String(about.event_id)], { queue: its });
  const found = PLACES.find(([pattern]) => pattern.test(code));
  if (found) return link(found[1], found[1][0] === "dead" ? { queue: its, group: about?.fingerprint } : {});
  if (/orphan|lease/.test(code)) return link(["events"], { queue: its, status: "PROCESSING" });
  if (/oldest|waiting|fail/.test(code)) return link(["events"], { queue: its, status: /fail/.test(code) ? "FAILED" : "PENDING", types: about?.type });
  return queue ? link(["queues", queue]) : null;
}
