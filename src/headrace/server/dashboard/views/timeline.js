// The timeline of an event: published, every attempt, and its state now.

import { h } from "../dom.js";
import { badge, card, time } from "../parts.js";
import { clock, duration, fully, roughly } from "../time.js";
import { word } from "./ticker.js";

const LONG = 1500; // milliseconds between two attempts that are worth showing

const milliseconds = (one) =>
  one.execution_time_ms ?? (one.ended_at ? Date.parse(one.ended_at) - Date.parse(one.picked_at) : null);

export function timeline(known) {
  const { attempts } = known.story;
  const longest = attempts.length > 1 ? Math.max(1, ...attempts.map((one) => milliseconds(one) ?? 0)) : null;
  const before = (n) =>
    attempts.slice(0, n).findLast((one) => one.queue === attempts[n].queue)?.ended_at ?? known.created_at;
  const items = attempts.map((one, n) => attempt(one, before(n), longest));
  items.splice(endsBefore(known), 0, now(known));
  return card(
    "Timeline",
    { class: "timeline" },
    h("ol", {}, moment("published", "calm", known.created_at, known.producer && `by ${known.producer}`), items),
  );
}

/** How many attempts come before the end in this queue; in other queues there may be later ones. */
function endsBefore(known) {
  const { attempts } = known.story;
  if (known.status === "PENDING") return attempts.length;
  const end = Date.parse(known.updated_at) + 1000; // the API rounds it to the second
  const later = attempts.findIndex((one) => Date.parse(one.picked_at) > end);
  return later < 0 ? attempts.length : later;
}

function moment(said, tone, at, more, key = said) {
  return h(
    "li",
    { key, class: `${tone} moment` },
    h("div", { class: "what" }, badge(said, tone), more && h("span", { class: "worker" }, more), stamp(at)),
  );
}

const stamp = (at) => at && h("time", { datetime: at, title: fully(at) }, clock(at));

function attempt(one, before, longest) {
  const [said, tone] = one.action ? word(one.action) : ["in progress", "busy"];
  const took = milliseconds(one);
  const waited = before ? Date.parse(one.picked_at) - Date.parse(before) : 0;
  return h(
    "li",
    { key: `${one.queue}/${one.attempt}/${one.picked_at}`, class: tone },
    h(
      "div",
      { class: "what" },
      h("span", { class: "nth", title: `Attempt ${one.attempt}` }, one.attempt),
      badge(said, tone),
      h(
        "span",
        { class: "worker" },
        one.worker_id ?? "",
        waited > LONG && h("small", {}, ` after ${roughly(waited / 1000)}`),
      ),
      one.queue !== "main" && h("span", { class: "tag" }, one.queue),
      took !== null && h("span", { class: "took" }, duration(took / 1000)),
      stamp(one.picked_at),
    ),
    took !== null &&
      longest &&
      h(
        "div",
        { class: "bar", "aria-hidden": "true" },
        h("i", { style: { width: `${Math.max(0.5, (took / longest) * 100)}%` } }),
      ),
    one.error_message && h("p", { class: "error" }, one.error_message),
    one.error_traceback &&
      h(
        "details",
        {},
        h("summary", {}, "Traceback"),
        h("pre", { tabindex: "0", "aria-label": "Traceback" }, one.error_traceback),
      ),
  );
}

/** How it ended or what it waits for, if the last attempt does not say so. */
function now(known) {
  switch (known.status) {
    case "PENDING":
      return known.next_retry_at
        ? h(
            "li",
            { key: "now", class: "calm moment" },
            h(
              "div",
              { class: "what" },
              badge("next attempt", "calm"),
              h("span", { class: "worker" }, time(known.next_retry_at)),
              stamp(known.next_retry_at),
            ),
          )
        : moment("waiting for a worker", "calm", null, null, "now");
    case "FAILED":
    case "COMPLETED_WITH_ERRORS":
      return moment("dead letter", "bad", known.updated_at, "until it is retried", "now");
    case "CANCELLED":
      return moment("cancelled", "calm", known.updated_at, null, "now");
    default:
      return null;
  }
}
