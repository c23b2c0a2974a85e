// Actions on a queue. Those with consequences ask for confirmation and name them.

import { api, path } from "../api.js";
import { ask } from "../dialog.js";
import { button } from "../parts.js";
import { plural } from "../time.js";
import { changes, fields, problem } from "./queue_settings.js";

export function controls(page, queue) {
  if (!page.mayAdminister) return null;
  const name = `‘${queue.name}’`;
  const post = (verb, said) => () =>
    page.act(() => api.post(path`/queues/${page.namespace}/${queue.name}/${verb}`), said);
  const pause = () =>
    ask({
      title: `Pause ${name}?`,
      action: "Pause",
      danger: true,
      text: "Workers get no events from it until it is resumed. Deliveries in progress can finish; new events are accepted and wait.",
    }).then((yes) => yes && post("pause", `${queue.name} is paused.`)());
  const drain = () =>
    ask({
      title: `Drain ${name}?`,
      action: "Drain",
      danger: true,
      text: `It refuses new events and hands out ${queue.depth ? `the ${plural(queue.depth, "waiting delivery", "waiting deliveries")}` : "its deliveries"}; then it is paused.`,
    }).then((yes) => yes && post("drain", `${queue.name} is draining.`)());
  const resume = post("resume", `${queue.name} is active again.`);
  if (queue.state === "active")
    return [
      button("Pause", pause, { "aria-label": `Pause ${queue.name}` }),
      button("Drain", drain, { "aria-label": `Drain ${queue.name}` }),
    ];
  return button("Resume", resume, { class: "primary", "aria-label": `Resume ${queue.name}` });
}

/** Ask for settings, and save those that changed. */
export async function change(page, queue) {
  const values = await ask({
    title: `Settings of ‘${queue.name}’`,
    action: "Save",
    text:
      queue.name === "main"
        ? "Changes apply at once, to events published and claimed from now on."
        : "Changes apply at once. Events that the queue already has stay in it.",
    fields: fields(queue),
    check: problem,
  });
  const changed = values ? changes(queue, values) : {};
  if (!Object.keys(changed).length) return;
  await page.act(() => api.patch(path`/queues/${page.namespace}/${queue.name}`, changed), "Saved.");
}
