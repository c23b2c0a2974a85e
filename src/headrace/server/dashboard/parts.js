// Small components of the views.

import { h } from "./dom.js";
import { icon } from "./icons.js";
import { toast } from "./toast.js";
import { ago, fully } from "./time.js";

const STATUS = {
  PENDING: ["pending", "calm"],
  PROCESSING: ["processing", "busy"],
  COMPLETED: ["completed", "good"],
  COMPLETED_WITH_ERRORS: ["completed with errors", "warn"],
  FAILED: ["failed", "bad"],
  CANCELLED: ["cancelled", "calm"],
};

export function heading(title, ...beside) {
  return h(
    "div",
    { class: "heading" },
    h("h1", { id: "heading", tabindex: "-1" }, title),
    h("div", { class: "beside" }, beside),
  );
}

export function status(name, delayedUntil = null) {
  if (!name) return h("span", { class: "badge calm" }, "not in this queue");
  const [said, tone] =
    name === "PENDING" && delayedUntil ? ["delayed", "calm"] : (STATUS[name] ?? [name.toLowerCase(), "calm"]);
  return badge(said, tone);
}

export function badge(said, tone) {
  return h("span", { class: `badge ${tone}` }, h("i", { "aria-hidden": "true" }), said);
}

export function time(at, otherwise = "–") {
  return at ? h("time", { datetime: at, title: fully(at) }, ago(at)) : otherwise;
}

export function tags(list) {
  return list.map((tag, n) => h("span", { class: "tag", key: `${n}` }, tag));
}

export function card(title, props, ...content) {
  const { beside, ...rest } = props ?? {};
  return h(
    "section",
    { ...rest, class: `card ${rest.class ?? ""}`, "aria-label": title },
    h("div", { class: "card-head" }, h("h2", {}, title), beside),
    content,
  );
}

export function button(said, act, props = {}) {
  return h("button", { type: "button", class: "plain", onclick: act, ...props }, said);
}

export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return h(
    "dl",
    { class: "facts" },
    known.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/** Choose one of a few, each [value, word]. */
export function choice(label, options, chosen, choose) {
  return h(
    "div",
    { class: "choice", role: "group", "aria-label": label },
    options.map(([value, word]) =>
      h(
        "button",
        { type: "button", key: value, "aria-pressed": String(value === chosen), onclick: () => choose(value) },
        word,
      ),
    ),
  );
}

/** For a list that pauses while the pointer or the focus is in it. */
export function holding(hold) {
  return {
    onpointerenter: () => hold(true),
    onpointerleave: () => hold(false),
    onfocusin: () => hold(true),
    onfocusout: (event) => event.currentTarget.contains(event.relatedTarget) || hold(false),
  };
}

/** The queue of a view, if there are several to choose from. */
export function queueChoice(page, queues) {
  const names = (queues.value?.queues ?? []).map((one) => one.name);
  if (!names.includes(page.queue)) names.push(page.queue);
  if (names.length < 2) return null;
  const choose = (event) =>
    page.change({
      queue: event.target.value === "main" ? null : event.target.value,
      before: null,
      after: null,
      group: null,
    });
  return h(
    "label",
    { class: "inline" },
    h("span", {}, "Queue"),
    h(
      "select",
      { onchange: choose, value: page.queue },
      names.map((name) => h("option", { key: name, value: name, selected: name === page.queue }, name)),
    ),
  );
}

/**
 * A table: columns are [title, class]; rows are {key, cells, leads}. A row that leads somewhere has a link with data-item.
 * On a phone the rows have another layout; a browser would then drop the roles of a table, so they are explicit.
 */
export function table(label, columns, rows) {
  return h(
    "div",
    { class: "table" },
    h(
      "table",
      { "aria-label": label, role: "table" },
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          columns.map(([title, kind = ""]) =>
            h(
              "th",
              { scope: "col", role: "columnheader", class: kind },
              title || h("span", { class: "unseen" }, "Actions"),
            ),
          ),
        ),
      ),
      h(
        "tbody",
        { role: "rowgroup" },
        rows.map(({ key, cells, leads }) =>
          h(
            "tr",
            { key, role: "row", class: leads ? "leads" : "", onclick: leads ? follow : null },
            cells.map((cell, n) =>
              h("td", { role: "cell", class: columns[n][1] ?? "", "data-label": columns[n][0] }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}

/** A click anywhere in a row follows its link, unless it was on another control. */
function follow(event) {
  if (event.target.closest("a, button, input, label, summary") || String(getSelection())) return;
  event.currentTarget.querySelector("[data-item]")?.click();
}

/** A placeholder while data is loading, or the error; null when there is data. */
export function pending(watched, lines = 4) {
  if (watched.loading)
    return h(
      "div",
      { class: "skeleton", "aria-label": "Loading", role: "status" },
      Array.from({ length: lines }, () => h("i")),
    );
  if (watched.value === null) return h("div", { class: "empty" }, h("p", {}, watched.error.message));
  return null;
}

export function empty(title, text, command = null) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "lead" }, title),
    text && h("p", {}, text),
    command && terminal(command),
  );
}

export function terminal(command) {
  return h(
    "div",
    { class: "terminal" },
    h("pre", { tabindex: "0", "aria-label": "Command" }, h("code", {}, command)),
    copy(() => command, "Copy command"),
  );
}

/** A button that copies the result of `say`. */
export function copy(say, label) {
  const act = async () => {
    try {
      await navigator.clipboard.writeText(say());
      toast("Copied.");
    } catch {
      toast("The browser does not allow this page to copy.", { bad: true });
    }
  };
  return h("button", { type: "button", class: "quiet", onclick: act, "aria-label": label, title: label }, icon("copy"));
}

/** A shell command that calls this server. */
export function curl(page, where, body) {
  const query = page.namespace === "default" ? "" : `?namespace=${encodeURIComponent(page.namespace)}`;
  const lock = page.app.me?.open ? "" : ' \\\n  -H "Authorization: Bearer $TOKEN"';
  const said = body.replaceAll("'", "'\\''");
  return `curl ${location.origin}${where}${query}${lock} \\\n  -H 'Content-Type: application/json' \\\n  -d '${said}'`;
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*/g;

const laidOut = new WeakMap();

/** JSON, indented and coloured; once for each value, because it may be long. */
export function json(value) {
  if (value === null || typeof value !== "object") return layOut(value);
  if (!laidOut.has(value)) laidOut.set(value, layOut(value));
  return laidOut.get(value);
}

function layOut(value) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  const parts = [];
  let at = 0;
  if (text.length < 200_000) {
    for (const match of text.matchAll(TOKEN)) {
      parts.push(text.slice(at, match.index));
      const kind = match[2] !== undefined ? "key" : match[1] !== undefined ? "text" : "word";
      parts.push(h("span", { class: `json-${kind}` }, match[1] ?? match[0]));
      at = match.index + (match[1] ?? match[0]).length;
    }
  }
  parts.push(text.slice(at));
  return h("pre", { class: "json", tabindex: "0", "aria-label": "JSON" }, h("code", {}, parts));
}
