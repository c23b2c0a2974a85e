// What one can do to an event: retry a dead letter, reset what waits or is stuck, cancel what should not happen.

import { api, path } from "../api.js";
import { ask } from "../dialog.js";
import { button } from "../parts.js";

const REASON = { name: "reason", label: "Why", hint: "Kept in the log with your name.", maxlength: 500 };

/** The buttons for what can be done to it as it stands. */
export function actions(page, known) {
  if (!page.mayAdminister) return null;
  const isDead = known.status === "FAILED" || known.status === "COMPLETED_WITH_ERRORS";
  const isLive = known.status === "PENDING" || known.status === "PROCESSING";
  const isReady = known.status === "PENDING" && !known.next_retry_at;
  return [
    isDead && button("Retry", () => retry(page, known), { class: "primary" }),
    isLive && !isReady && button("Reset", () => reset(page, known)),
    isLive && button("Cancel", () => cancel(page, known), { class: "plain danger" }),
  ];
}

const at = (page) => ({ namespace: page.namespace, queue: page.queue });

async function retry(page, known) {
  const values = await ask({
    title: "Retry this event?",
    text: `${known.type} ${known.id} is delivered to ‘${page.queue}’ again, with all its tries. Its log goes on where it ended.`,
    action: "Retry",
    fields: [REASON],
  });
  if (!values) return;
  const said = ({ deliveries }) => (deliveries ? "It is on its way again." : "It is no dead letter any more.");
  await page.act(() => api.post("/dead-letters/redrive", { ids: [known.id], reason: values.reason }, at(page)), said);
}

async function reset(page, known) {
  const isInWork = known.status === "PROCESSING";
  const values = await ask({
    title: "Reset this event?",
    text: isInWork
      ? `${known.worker_id ?? "A worker"} is at it. Its claim is lost, whatever it has done so far, and anybody may begin again now.`
      : "It does not wait any longer: its delay is cut short, and it is ready now.",
    action: "Reset",
    danger: isInWork,
    fields: [REASON],
  });
  if (values) await post(page, known, "reset", values.reason, "It is ready now.");
}

async function cancel(page, known) {
  const values = await ask({
    title: "Cancel this event?",
    text: [
      `${known.type} ${known.id} ends for good in ‘${page.queue}’: nobody will work on it. This cannot be undone.`,
      known.status === "PROCESSING" && "Whoever works on it now is not stopped, but what comes of it is not taken.",
    ],
    action: "Cancel the event",
    danger: true,
    fields: [REASON],
  });
  if (values) await post(page, known, "cancel", values.reason, "It is cancelled.");
}

function post(page, known, verb, reason, said) {
  return page.act(() => api.post(path`/events/${known.id}/${verb}`, undefined, { ...at(page), reason }), said);
}
