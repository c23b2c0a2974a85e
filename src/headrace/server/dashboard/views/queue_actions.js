// What one can do to a queue: each asks once, where it has consequences, and says which.

import { api, path } from "../api.js";
import { ask } from "../dialog.js";
import { button } from "../parts.js";
import { plural } from "../time.js";

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
      text: "Nobody gets events from it until it is resumed. What is in work is finished, and events are still published into it and wait.",
    }).then((yes) => yes && post("pause", `${queue.name} is paused.`)());
  const drain = () =>
    ask({
      title: `Drain ${name}?`,
      action: "Drain",
      danger: true,
      text: `It takes nothing new: who publishes into it is refused. ${queue.depth ? `The ${plural(queue.depth, "delivery", "deliveries")} that wait are worked off` : "What is there is worked off"}, then it is paused.`,
    }).then((yes) => yes && post("drain", `${queue.name} drains.`)());
  const resume = post("resume", `${queue.name} is active again.`);
  if (queue.state === "active")
    return [
      button("Pause", pause, { "aria-label": `Pause ${queue.name}` }),
      button("Drain", drain, { "aria-label": `Drain ${queue.name}` }),
    ];
  return button("Resume", resume, { class: "primary", "aria-label": `Resume ${queue.name}` });
}

const words = (text) =>
  text
    .split(",")
    .map((word) => word.trim())
    .filter(Boolean);
const listed = { read: (text) => (words(text).length ? words(text) : null), say: (value) => (value ?? []).join(", ") };
const whole = { read: (text) => (String(text).trim() === "" ? null : Number(text)), say: (value) => value ?? "" };
const seconds = { ...whole, step: "any" };
const json = {
  read: (text) => (text.trim() === "" ? null : JSON.parse(text)),
  say: (value) => (value && Object.keys(value).length ? JSON.stringify(value) : ""),
};
const yes = { read: Boolean, say: Boolean };
const oldest = { read: (checked) => (checked ? "oldest" : "fair"), say: (value) => value === "oldest" };
const checkboxes = [yes, oldest];

const SETTINGS = [
  ["types", "Types", "With commas; one may hold asterisks. Empty: all.", listed],
  ["tags", "Tags", "With commas. Empty: whatever the tags.", listed],
  ["all_tags", "An event needs all of the tags", null, yes],
  ["takes", "It takes new events", null, yes],
  ["max_retries", "Tries", "The last failure makes a dead letter. Empty: three.", whole],
  ["backoff", "Backoff", "JSON. Empty: five minutes each time.", json],
  ["max_queue_depth", "Most that may wait", "Publishing into it is refused beyond. Empty: no limit.", whole],
  ["high_watermark", "High watermark", "Publishers are told that it is under pressure beyond.", whole],
  ["persistence_threshold", "Its state is saved at", "As soon as so many wait. Empty: by the clock alone.", whole],
  ["require_lease_token", "Claims are proved by their lease token", null, yes],
  ["order", "The oldest of all comes first, one claim at a time", null, oldest],
  ["lease", "Lease", "Seconds that a claim lasts which does not say so. Empty: 60, or what the server says.", seconds],
  ["batch_size", "Batch", "How many a node claims at once.", whole],
];

/** Ask for settings, and change those that are different. */
export async function change(page, queue) {
  const values = await ask({
    title: `Settings of ‘${queue.name}’`,
    action: "Save",
    text:
      queue.name === "main"
        ? "They apply at once, to what is published and claimed from now on."
        : "They apply at once. What it has already got stays in it.",
    fields: SETTINGS.map(([name, label, hint, kind]) => ({
      name,
      label,
      hint,
      value: kind.say(queue[name]),
      type: checkboxes.includes(kind) ? "checkbox" : kind.read === whole.read ? "number" : "text",
      ...(kind.read === whole.read ? { min: 0, step: kind.step ?? 1, inputmode: "numeric" } : {}),
    })),
    check: (given) => {
      try {
        read(given);
        return null;
      } catch {
        return "The backoff is no JSON.";
      }
    },
  });
  if (!values) return;
  const changes = Object.fromEntries(
    Object.entries(read(values)).filter(
      ([name, value]) => JSON.stringify(value) !== JSON.stringify(queue[name] ?? null),
    ),
  );
  if (!Object.keys(changes).length) return;
  await page.act(() => api.patch(path`/queues/${page.namespace}/${queue.name}`, changes), "Saved.");
}

const read = (values) => Object.fromEntries(SETTINGS.map(([name, , , kind]) => [name, kind.read(values[name])]));
