// The events of a queue: searched, filtered, live. The filters are in the address.

import { api } from "../api.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { curl, empty, heading, holding, pending, queueChoice, status, table, tags, time } from "../parts.js";
import { now, number } from "../time.js";
import { toast } from "../toast.js";

const LIMIT = 50;
const TYPING = 350; // milliseconds after the last key
const CALM = 2000; // milliseconds between two updates of a live list
const LOOK_AT = 50_000; // ids that a request searches one by one: few enough for a quick answer
const STATUSES = [
  ["PENDING", "Pending"],
  ["PROCESSING", "Processing"],
  ["COMPLETED", "Completed"],
  ["COMPLETED_WITH_ERRORS", "With errors"],
  ["FAILED", "Failed"],
  ["CANCELLED", "Cancelled"],
];
const WITHIN = { "15m": 900, "1h": 3600, "24h": 86400, "7d": 604800 };
const FILTERS = ["q", "status", "types", "tags", "key", "within"];
const FIRST_PAGE = { before: null, after: null };

export function events(page) {
  const queues = page.watch((signal) => api.get("/queues", { namespace: page.namespace }, signal), 30);
  const list = page.watch((signal) => api.get("/events", asked(page), signal), 5);
  const shards = page.watch((signal) => api.get("/shards", {}, signal), 10);
  page.listen(() => isFirst(page) && list.hurry(CALM));
  return () => [
    heading("Events", queueChoice(page, queues)),
    search(page),
    h(
      "section",
      {
        class: list.busy ? "stale" : "",
        "aria-label": "Events",
        "aria-busy": String(list.busy),
        ...holding((held) => list.hold(held)),
      },
      pending(list, 8) ?? found(page, list, shards.value),
    ),
  ];
}

const isFirst = (page) => !page.param("before") && !page.param("after");

function asked(page) {
  const within = WITHIN[page.param("within")];
  const named = Object.fromEntries(
    ["q", "status", "types", "tags", "key", "before", "after"].map((name) => [name, page.param(name)]),
  );
  const isFiltered = ["q", "types", "tags", "key"].some((name) => named[name]);
  const isOneByOne = isFiltered && (!named.status || /COMPLETED(,|$)|CANCELLED/.test(named.status));
  return {
    ...named,
    types: named.q ? null : named.types,
    namespace: page.namespace,
    queue: page.queue,
    limit: LIMIT,
    details: true,
    look_at: isOneByOne ? LOOK_AT : null,
    since: within ? new Date(now() - within * 1000).toISOString() : null,
    oldest_first: page.param("after") ? true : null,
  };
}

let typing; // the timer of an input that is not complete yet

function search(page) {
  const change = (params) => page.change({ ...params, ...FIRST_PAGE }, { replace: true });
  const field = (name, label, hint, props = {}) => {
    const set = (event) => change({ [name]: event.target.value.trim() });
    return h(
      "label",
      { class: "filter" },
      h("span", {}, label),
      h("input", {
        type: "search",
        value: page.param(name) ?? "",
        placeholder: hint,
        autocomplete: "off",
        spellcheck: "false",
        maxlength: 500,
        ...props,
        oninput: (event) => {
          clearTimeout(typing);
          typing = setTimeout(set, TYPING, event);
        },
        onchange: set,
      }),
    );
  };
  const chosen = (page.param("status") ?? "").split(",").filter(Boolean);
  const toggle = (name) =>
    change({ status: (chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]).join(",") });
  return h(
    "search",
    { class: "filters" },
    h(
      "div",
      { class: "searching" },
      icon("search"),
      field("q", "Search", "Event ID, correlation ID, idempotency key or type", { id: "search" }),
      h("kbd", { "aria-hidden": "true" }, "/"),
    ),
    h(
      "div",
      { class: "chips", role: "group", "aria-label": "Status" },
      STATUSES.map(([name, said]) =>
        h(
          "button",
          { type: "button", key: name, "aria-pressed": String(chosen.includes(name)), onclick: () => toggle(name) },
          said,
        ),
      ),
    ),
    h(
      "div",
      { class: "more" },
      field("types", "Type", "order.*", { disabled: Boolean(page.param("q")) }),
      field("tags", "Tags", "email,urgent"),
      field("key", "Ordering key", "customer-7"),
      h(
        "label",
        { class: "filter" },
        h("span", {}, "Published"),
        h(
          "select",
          { value: page.param("within") ?? "", onchange: (event) => change({ within: event.target.value }) },
          [
            ["", "any time"],
            ["15m", "last 15 min"],
            ["1h", "last hour"],
            ["24h", "last 24 h"],
            ["7d", "last 7 days"],
          ].map(([value, said]) => h("option", { value }, said)),
        ),
      ),
      FILTERS.some((name) => page.param(name)) &&
        h("button", { type: "button", class: "plain clear", onclick: () => clear(page) }, "Clear"),
    ),
  );
}

function clear(page) {
  page.change({ ...Object.fromEntries(FILTERS.map((name) => [name, null])), ...FIRST_PAGE });
  for (const field of document.querySelectorAll(".filters input")) field.value = "";
}

function found(page, list, shards) {
  const { value, error, held } = list;
  const { events: listed, total, total_is_exact: exact, searched_to: reached } = value;
  const isSharded = Boolean(shards?.shards.length);
  const shard = (id) => (id <= shards.mark ? 0 : id % shards.stride);
  const silent = shards && withoutAnswer(shards);
  const rows = page.param("after") ? [...listed].reverse() : listed;
  if (!rows.length) return reached ? further(page, reached, true) : none(page);
  return [
    error && h("p", { class: "wrong", role: "alert" }, error.message),
    silent && h("p", { class: "wrong", role: "alert" }, silent),
    h(
      "p",
      { class: "count", role: "status" },
      counted(total, exact, reached),
      isFirst(page) && (held ? ", newest first, paused while you use the list" : ", newest first, live"),
    ),
    table(
      "Events",
      [
        ["Event"],
        ["Status"],
        ...(isSharded ? [["Shard", "number"]] : []),
        ["Tags", "wide"],
        ["Attempts", "number wide"],
        ["Published", "when"],
        ["Updated", "when wide"],
      ],
      rows.map((event) => row(page, event, isSharded ? [number(shard(event.id))] : [])),
    ),
    reached ? further(page, reached, false) : pages(page, rows, listed.length),
  ];
}

/** Which shards' events the list is without. */
function withoutAnswer({ shards, missing }) {
  const names = [...shards.filter((one) => !one.answers).map((one) => `shard ${number(one.number)}`), ...missing];
  return names.length ? `The list is without the events of ${names.join(", ")}: no answer.` : null;
}

function counted(total, exact, reached) {
  const said = `${number(total)} ${total === 1 ? "event" : "events"}`;
  if (reached) return `${said} so far`;
  return exact === false ? `More than ${said}` : said;
}

/** The search stopped early: matches may be further back, and a button continues. */
function further(page, reached, isNothing) {
  const beyond = page.param("after") ? "newer" : "older";
  const looking = page.looking === page.place;
  const way = page.param("after") ? "up" : "back";
  const said = `${isNothing ? "No matches yet. " : ""}Searched ${way} to event ${number(reached)}.`;
  const goOn = () => lookFurther(page, reached);
  return h(
    "div",
    { class: isNothing ? "empty" : "further" },
    h("p", { role: "status" }, looking ? "Searching …" : said),
    h("button", { type: "button", class: "plain", disabled: looking, onclick: goOn }, `Search ${beyond}`),
    !isFirst(page) && h("button", { type: "button", class: "plain", onclick: () => page.change(FIRST_PAGE) }, "Newest"),
  );
}

/** Search range by range, until there is a match or nothing is left. */
async function lookFurther(page, reached) {
  const where = (page.looking = page.place);
  const on = page.param("after") ? "after" : "before";
  page.redraw();
  try {
    for (let from = reached; page.looking === where && page.place === where;) {
      const answer = await api.get("/events", { ...asked(page), [on]: from });
      if (!answer.events.length && answer.searched_to) from = answer.searched_to;
      else return page.change({ [on]: from });
    }
  } catch (error) {
    toast(error.message, { bad: true });
  } finally {
    page.looking = null;
    page.redraw();
  }
}

function row(page, event, shard) {
  const queue = page.queue === "main" ? null : page.queue;
  return {
    key: String(event.id),
    leads: true,
    cells: [
      [
        h(
          "a",
          { "data-item": true, class: "title", href: page.link(["events", String(event.id)], { queue }) },
          event.type,
        ),
        h("small", { class: "below" }, `${event.id}`, event.title !== event.type && ` · ${event.title}`),
      ],
      status(event.status, event.next_retry_at),
      ...shard,
      tags(event.tags ? event.tags.split(",") : []),
      event.attempts,
      time(event.created_at),
      time(event.updated_at),
    ],
  };
}

function pages(page, rows, many) {
  const older = many === LIMIT || page.param("after") ? { before: rows.at(-1).id, after: null } : null;
  const newer = isFirst(page) ? null : { after: rows[0].id, before: null };
  const step = (params, said, label) =>
    h(
      "button",
      { type: "button", class: "plain", disabled: !params, onclick: () => page.change(params) },
      label === "left" && icon("left"),
      said,
      label === "right" && icon("right"),
    );
  return h(
    "nav",
    { class: "pages", "aria-label": "Pages" },
    !isFirst(page) && h("button", { type: "button", class: "plain", onclick: () => page.change(FIRST_PAGE) }, "Newest"),
    step(newer, "Newer", "left"),
    step(older, "Older", "right"),
  );
}

function none(page) {
  if (!isFirst(page)) return empty("No more events", null);
  if (FILTERS.some((name) => page.param(name)))
    return empty(
      "No matches",
      "No event of this queue matches. Remove a filter, or choose another queue.",
    );
  return empty(
    "No events yet",
    "Publish the first one:",
    curl(page, "/events", '{"type": "order.created", "tags": "demo", "payload": {"order": 42}}'),
  );
}
