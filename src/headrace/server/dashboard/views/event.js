// One event: its payload, every attempt, its state in every queue, its related events.

import { api, path } from "../api.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { card, copy, empty, facts, json, pending, status, table, tags, time } from "../parts.js";
import { fully, plural } from "../time.js";
import { actions } from "./event_actions.js";
import { timeline } from "./timeline.js";

const KIN = 10; // events of the same correlation that are shown

export function event(page) {
  const id = page.place.parts[1];
  const story = page.watch(
    (signal) =>
      api.getExactly(
        path`/events/${id}`,
        {
          namespace: page.namespace,
          queue: page.queue,
          details: true,
          include: "story",
        },
        signal,
      ),
    10,
  );
  const why = page.watch(
    (signal) => api.get(path`/events/${id}/why`, { namespace: page.namespace, queue: page.queue }, signal),
    10,
  );
  page.listen((entries) => {
    if (entries.some((entry) => String(entry.event_id) === id)) {
      story.hurry();
      why.hurry();
    }
  });
  return () => {
    const known = story.value;
    return [
      h(
        "p",
        { class: "crumbs" },
        h(
          "a",
          { href: page.link(["events"], { queue: page.queue === "main" ? null : page.queue }) },
          icon("left"),
          "Events",
        ),
      ),
      h(
        "div",
        { class: "heading" },
        h(
          "div",
          {},
          h("h1", { id: "heading", tabindex: "-1" }, h("bdi", {}, known?.type ?? "Event"), h("small", {}, ` ${id}`)),
          known && known.title !== known.type && h("p", { class: "subtitle" }, known.title),
        ),
        h("div", { class: "beside" }, known && [status(known.status, known.next_retry_at), actions(page, known)]),
      ),
      story.error?.status === 404
        ? empty("Event not found", "It was never published in this namespace, or its retention has ended.")
        : (pending(story, 8) ?? [reasons(known, why.value), told(page, known)]),
    ];
  };
}

// What an event that has not ended waits for. The two answers are of different moments: of an event that has just
// ended, one may not know.
function reasons(known, why) {
  const found = why?.reasons.filter((one) => one.code !== "ended") ?? [];
  if (!["PENDING", "PROCESSING"].includes(known.status) || !found.length) return null;
  return h(
    "ul",
    { class: "reasons", "aria-label": "What it waits for" },
    found.map((one) => h("li", {}, one.message)),
  );
}

function told(page, known) {
  return [
    known.description && h("p", { class: "description" }, known.description),
    h(
      "div",
      { class: "columns" },
      h("div", { class: "main-column" }, timeline(known), payload(known), family(page, known)),
      h("div", { class: "side-column" }, about(page, known), deliveries(page, known)),
    ),
  ];
}

function payload(known) {
  return card(
    "Payload",
    { class: "payload", beside: copy(() => JSON.stringify(known.payload, null, 2), "Copy payload") },
    json(known.payload),
  );
}

function about(page, known) {
  return card(
    "Details",
    {},
    facts([
      ["Published", [time(known.created_at), h("small", {}, ` ${fully(known.created_at)}`)]],
      ["Producer", known.producer],
      ["Next attempt", known.next_retry_at && time(known.next_retry_at)],
      [
        "Worker",
        known.worker_id && [
          known.worker_id,
          known.lease_expires_at && h("small", {}, " lease ends ", time(known.lease_expires_at)),
        ],
      ],
      ["Attempts", counted(known)],
      ["Tags", known.tags && tags(known.tags.split(","))],
      ["Priority", known.priority],
      ["Ordering key", known.key && h("a", { href: page.link(["events"], { key: known.key }) }, known.key)],
      ["Unique key", known.unique],
      ["Debounce key", known.debounce],
      [
        "Superseded by",
        known.superseded_by &&
          h("a", { href: page.link(["events", String(known.superseded_by)]) }, String(known.superseded_by)),
      ],
      [
        "Correlation ID",
        known.correlation_id &&
          h("a", { href: page.link(["events"], { q: known.correlation_id }) }, known.correlation_id),
      ],
      ["Causation ID", known.causation_id],
      [
        "Schedule",
        known.scheduled_task_id && [
          h("a", { href: page.link(["schedules"]) }, known.scheduled_task_id),
          known.scheduled_for && h("small", {}, ` for ${fully(known.scheduled_for)}`),
        ],
      ],
      ["Encoded by", known.headers?.["headrace-codec"]],
      ["Schema version", known.version],
      ["Trace ID", known.trace_id],
      ["Backoff", known.backoff && JSON.stringify(known.backoff)],
      ["Headers", known.headers && Object.keys(known.headers).length > 0 && entries(known.headers)],
      ["Source", known.source && entries(known.source)],
    ]),
  );
}

function counted({ attempts, retry_count: failures, max_retries: most, crashes, snoozes }) {
  const said = [`${attempts} · ${failures} failed, max ${Math.max(1, most)}`];
  if (crashes) said.push(plural(crashes, "crash", "crashes"));
  if (snoozes) said.push(plural(snoozes, "snooze"));
  return said.join(" · ");
}

function entries(object) {
  return Object.entries(object).map(([name, value]) =>
    h("div", {}, `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`),
  );
}

function deliveries(page, known) {
  const list = known.story.deliveries;
  if (list.length < 2) return null;
  return card(
    "Deliveries",
    {},
    table(
      "Deliveries",
      [["Queue"], ["Status"], ["Updated", "when"]],
      list.map((one) => ({
        key: one.queue,
        leads: true,
        cells: [
          h(
            "a",
            {
              "data-item": true,
              href: page.link(["events", String(known.id)], { queue: one.queue === "main" ? null : one.queue }),
            },
            one.queue,
          ),
          status(one.status, one.next_retry_at),
          time(one.updated_at),
        ],
      })),
    ),
  );
}

function family(page, known) {
  const { caused_by: cause, causes, same_correlation: others } = known.story;
  const told = new Set([cause, ...causes].filter(Boolean).map((one) => one.id));
  const rest = others.filter((one) => !told.has(one.id));
  const relative = (one) =>
    h(
      "li",
      { key: String(one.id) },
      h(
        "a",
        { "data-item": true, href: page.link(["events", String(one.id)]) },
        one.type,
        h("small", {}, ` ${one.id}`),
      ),
      status(one.status),
      one.created_at && time(one.created_at),
    );
  if (!cause && !causes.length && !rest.length) return null;
  return card(
    "Related events",
    { class: "family" },
    cause && [h("h3", {}, "Caused by"), h("ul", {}, relative(cause))],
    causes.length > 0 && [
      h("h3", {}, `Caused ${plural(causes.length, "event")}${causes.length >= 50 ? " or more" : ""}`),
      h("ul", {}, causes.map(relative)),
    ],
    rest.length > 0 && [
      h(
        "h3",
        {},
        "Same correlation ID, ",
        h("a", { href: page.link(["events"], { q: known.correlation_id }) }, "show all"),
      ),
      h("ul", {}, rest.slice(0, KIN).map(relative)),
    ],
  );
}
