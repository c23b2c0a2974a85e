// The queues of a namespace: the filter, depth and state of each.

import { api } from "../api.js";
import { h } from "../dom.js";
import { badge, curl, empty, heading, pending, table, tags } from "../parts.js";
import { number } from "../time.js";
import { controls } from "./queue_actions.js";

const STATES = { active: ["active", "good"], paused: ["paused", "warn"], draining: ["draining", "busy"] };

export function queues(page) {
  const list = page.watch((signal) => api.get("/queues", { namespace: page.namespace }, signal), 3);
  page.listen(() => list.hurry(2000));
  return () => [heading("Queues"), pending(list) ?? shown(page, sorted(list.value.queues))];
}

/** By name, but `main` first. */
const sorted = (list) => [...list].sort((one, other) => (other.name === "main") - (one.name === "main"));

export function state(queue) {
  if (!queue.takes) return badge("disabled", "calm");
  const [said, tone] = STATES[queue.state] ?? [queue.state, "calm"];
  return [badge(said, tone), queue.filling && badge("backfilling", "busy")];
}

/** How full a queue is: as a number, and as a bar where there is a limit. */
export function depth(queue) {
  const limit = queue.max_queue_depth;
  const most = Math.max(limit ?? 0, 10_000);
  const said = queue.depth >= most ? `${number(most)} or more` : number(queue.depth);
  if (!limit) return said;
  const part = Math.min(1, queue.depth / limit);
  const isHigh = queue.depth >= (queue.high_watermark ?? limit * 0.8);
  return h(
    "span",
    { class: "fill" },
    `${said} of ${number(limit)}`,
    h(
      "span",
      { class: isHigh ? "bar warn" : "bar", "aria-hidden": "true" },
      h("i", { style: { width: `${part * 100}%` } }),
    ),
  );
}

/** Which events a queue takes, in words. */
export function filter(queue) {
  if (!queue.types && !queue.tags) return "all events";
  return [
    queue.types && tags(queue.types),
    queue.types && queue.tags && " with ",
    queue.tags && [
      queue.tags.length > 1 && (queue.all_tags ? "all of " : "any of "),
      tags(queue.tags.map((tag) => `#${tag}`)),
    ],
  ];
}

function shown(page, list) {
  return [
    table(
      "Queues",
      [["Queue"], ["State"], ["Filter", "wide"], ["Depth", "number"], ["Max attempts", "number wide"], ["", "actions"]],
      list.map((queue) => ({
        key: queue.name,
        leads: true,
        cells: [
          h("a", { "data-item": true, class: "title", href: page.link(["queues", queue.name]) }, queue.name),
          state(queue),
          filter(queue),
          depth(queue),
          number(Math.max(1, queue.max_retries)),
          controls(page, queue),
        ],
      })),
    ),
    list.length < 2 &&
      empty(
        "Only one queue so far",
        "Another queue gets its own copy of every event that matches its filter, with its own retries:",
        curl(page, "/queues", '{"name": "mail", "types": ["mail.*"], "max_retries": 5}'),
      ),
  ];
}
