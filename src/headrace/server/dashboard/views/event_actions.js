// Actions on an event: retry a dead letter, run an ended event again, reset one that waits or is stuck, cancel one.

import { api, path } from "../api.js";
import { ask } from "../dialog.js";
import { button } from "../parts.js";

const REASON = { name: "reason", label: "Reason", hint: "Stored in the log with your name.", maxlength: 500 };

/** The buttons of the actions that its status allows. */
export function actions(page, known) {
  if (!page.mayAdminister) return null;
  const isDead = known.status === "FAILED" || known.status === "COMPLETED_WITH_ERRORS";
  const isLive = known.status === "PENDING" || known.status === "PROCESSING";
  const isOver = known.status === "COMPLETED" || known.status === "CANCELLED";
  const isReady = known.status === "PENDING" && !known.next_retry_at;
  return [
    isDead && button("Retry", () => retry(page, known), { class: "primary" }),
    isOver && button("Run again", () => rerun(page, known)),
    isLive && !isReady && button("Reset", () => reset(page, known)),
    isLive && button("Cancel", () => cancel(page, known), { class: "plain danger" }),
  ];
}

const at = (page) => ({ namespace: page.namespace, queue: page.queue });

async function retry(page, known) {
  const values = await ask({
    title: "Retry this event?",
    text: `${known.type} ${known.id} is delivered to ‘${page.queue}’ again, with all its attempts. Its log continues.`,
    action: "Retry",
    fields: [REASON],
  });
  if (!values) return;
  const said = ({ deliveries }) => (deliveries ? "The event is ready again." : "The event is no longer a dead letter.");
  await page.act(() => api.post("/dead-letters/redrive", { ids: [known.id], reason: values.reason }, at(page)), said);
}

async function rerun(page, known) {
  const values = await ask({
    title: "Run this event again?",
    text: `${known.type} ${known.id} is delivered to ‘${page.queue}’ again, from the beginning. Its log continues.`,
    action: "Run again",
    fields: [REASON],
  });
  if (values) await post(page, known, "rerun", values.reason, "The event is ready.");
}

async function reset(page, known) {
  const isInProgress = known.status === "PROCESSING";
  const values = await ask({
    title: "Reset this event?",
    text: isInProgress
      ? `${known.worker_id ?? "A worker"} holds it and loses its claim. Another worker may start over at once.`
      : "Its delay ends: it is ready now.",
    action: "Reset",
    danger: isInProgress,
    fields: [REASON],
  });
  if (values) await post(page, known, "reset", values.reason, "The event is ready.");
}

async function cancel(page, known) {
  const values = await ask({
    title: "Cancel this event?",
    text: [
      `${known.type} ${known.id} ends for good in ‘${page.queue}’: no worker will get it. This cannot be undone.`,
      known.status === "PROCESSING" && "The worker that holds it is not stopped, but its result will be refused.",
    ],
    action: "Cancel event",
    dismiss: "Keep event",
    danger: true,
    fields: [REASON],
  });
  if (values) await post(page, known, "cancel", values.reason, "The event is cancelled.");
}

function post(page, known, verb, reason, said) {
  return page.act(() => api.post(path`/events/${known.id}/${verb}`, undefined, { ...at(page), reason }), said);
}
