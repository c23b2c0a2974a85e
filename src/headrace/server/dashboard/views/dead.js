// Dead letters by kind of error: what they say, how to try them again, and what becomes of them then.

import { api } from "../api.js";
import { ask } from "../dialog.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { button, empty, heading, json, pending, queueChoice, tags, time } from "../parts.js";
import { number, plural } from "../time.js";

const LETTERS = 20;
const TONES = { completed: "good", "in work": "busy", waiting: "calm", "died again": "bad", cancelled: "calm", purged: "calm", erased: "calm" };

export function deadLetters(page) {
  const at = () => ({ namespace: page.namespace, queue: page.queue });
  const chosen = new Set();
  const queues = page.watch((signal) => api.get("/queues", { namespace: page.namespace }, signal), 30);
  const groups = page.watch((signal) => api.get("/dead-letters/groups", at(), signal), 5);
  const letters = page.watch((signal) => opened(page) === null ? Promise.resolve({ dead_letters: [] })
    : api.get("/dead-letters", { ...at(), fingerprint: opened(page), limit: LETTERS, before: page.param("before"), payload: true }, signal), 5);
  page.listen((entries) => {
    if (entries.some(({ action }) => action === "DEAD_LETTERED" || action === "REDRIVEN")) groups.hurry(1000), letters.hurry(1000);
  });
  const view = { page, at, chosen, groups, letters };
  return () => [
    heading("Dead letters", queueChoice(page, queues), page.mayAdminister && groups.value?.groups.length > 0 && button("Redrive all", () => redriveAll(view))),
    fate(page),
    pending(groups) ?? kinds(view),
  ];
}

const opened = (page) => page.param("group");

function kinds(view) {
  const { page, groups } = view;
  const list = groups.value.groups;
  if (!list.length) return empty("No dead letters", "An event that uses up its attempts, or is given up, is kept here with its error until you try it again.");
  return h("ul", { class: "groups" }, list.map((group) => kind(view, group, opened(page) === group.fingerprint)));
}

function kind(view, group, isOpen) {
  const { page, chosen } = view;
  if (group.fingerprint === null) return erased(group);
  const turn = () => { chosen.clear(); page.change({ group: isOpen ? null : group.fingerprint, before: null }); };
  return h("li", { key: String(group.fingerprint), class: isOpen ? "card group open" : "card group" },
    h("div", { class: "group-head" },
      h("button", { type: "button", class: "unfold", "aria-expanded": String(isOpen), "data-item": true, onclick: turn },
        icon("right"), h("b", { class: "many" }, number(group.letters)),
        h("span", { class: "message" }, group.message || "no message")),
      page.mayAdminister && button("Redrive", () => redriveKind(view, group), { "aria-label": `Redrive ${plural(group.letters, "dead letter")}: ${group.message}` })),
    h("p", { class: "group-facts" }, tags(group.types), h("small", {}, "first ", time(group.first_died_at), ", last ", time(group.last_died_at))),
    isOpen && unfolded(view));
}

/** Letters whose errors have been erased have no kind any more. */
function erased(group) {
  return h("li", { key: "erased", class: "card group" },
    h("p", { class: "group-head" }, h("span", { class: "message" }, h("b", { class: "many" }, number(group.letters)), " whose error has been erased")));
}

function unfolded(view) {
  const { page, letters, chosen } = view;
  const waiting = pending(letters, 3);
  if (waiting) return waiting;
  const list = letters.value.dead_letters;
  const all = list.length > 0 && list.every((letter) => chosen.has(letter.id));
  const chooseAll = () => { list.forEach((letter) => (all ? chosen.delete(letter.id) : chosen.add(letter.id))); page.redraw(); };
  return h("div", { class: letters.busy ? "letters stale" : "letters" },
    page.mayAdminister && h("div", { class: "choosing" },
      h("label", {}, h("input", { type: "checkbox", checked: all, onchange: chooseAll }), all ? "None of these" : "All of these"),
      button(chosen.size ? `Redrive ${number(chosen.size)} chosen` : "Redrive chosen", () => redriveSome(view), { disabled: !chosen.size, class: "primary" })),
    h("ul", {}, list.map((letter) => shown(view, letter))),
    h("nav", { class: "pages", "aria-label": "Pages" },
      page.param("before") && button("First", () => page.change({ before: null })),
      list.length === LETTERS && button("More", () => page.change({ before: list.at(-1).id }))));
}

function shown({ page, chosen }, letter) {
  const choose = () => { chosen.has(letter.id) ? chosen.delete(letter.id) : chosen.add(letter.id); page.redraw(); };
  const queue = page.queue === "main" ? null : page.queue;
  return h("li", { key: String(letter.id), class: "letter" },
    page.mayAdminister && h("input", { type: "checkbox", "aria-label": `Choose ${letter.type} ${letter.id}`, checked: chosen.has(letter.id), onchange: choose }),
    h("details", {},
      h("summary", {}, h("span", { class: "title" }, letter.type), h("small", {}, ` ${letter.id}`), letter.title !== letter.type && h("span", { class: "hint" }, ` ${letter.title}`),
        h("span", { class: "right" }, `${plural(letter.attempts, "attempt")} · `, time(letter.died_at))),
      h("p", { class: "reason" }, letter.reason),
      letter.error && h("pre", { class: "error", tabindex: "0", "aria-label": "Error" }, letter.error),
      json(letter.payload)),
    h("a", { class: "story", href: page.link(["events", String(letter.id)], { queue }) }, h("span", {}, "Its story"), icon("right")));
}

// -- trying again --------------------------------------------------------------------------------------

const FIELDS = [
  { name: "rate", label: "At most so many a second", type: "number", min: 0, step: "any", inputmode: "decimal", hint: "Empty: all at once." },
  { name: "reason", label: "Why", hint: "Kept in the log with your name.", maxlength: 500 },
];

const checkRate = ({ rate }) => (String(rate).trim() === "" || Number(rate) > 0 ? null : "The rate is a number above 0, or empty.");

const total = (groups) => groups.reduce((sum, group) => sum + group.letters, 0);

function redriveAll(view) {
  const many = total(view.groups.value.groups);
  redrive(view, {}, `Redrive all ${plural(many, "dead letter")}?`, `Everything dead in ‘${view.page.queue}’ is delivered again, the longest dead first, with all its tries.`);
}

function redriveKind(view, group) {
  redrive(view, { fingerprint: group.fingerprint }, `Redrive ${plural(group.letters, "dead letter")}?`, `All that died of “${group.message}” is delivered again to ‘${view.page.queue}’, with all its tries.`);
}

function redriveSome(view) {
  redrive(view, { ids: [...view.chosen] }, `Redrive ${plural(view.chosen.size, "dead letter")}?`, `The chosen ones are delivered again to ‘${view.page.queue}’, with all their tries.`);
}

async function redrive(view, which, title, text) {
  const values = await ask({ title, text, action: "Redrive", fields: FIELDS, check: checkRate });
  if (!values) return;
  const body = { ...which, reason: values.reason, rate: String(values.rate).trim() === "" ? null : Number(values.rate) };
  await view.page.act(() => inSteps(body, view.at()), (many) => `${plural(many, "dead letter")} on ${many === 1 ? "its" : "their"} way again.`);
  view.chosen.clear();
}

/** As often as the server says that there are more. */
async function inSteps(body, at) {
  let many = 0;
  for (;;) {
    const { deliveries, more } = await api.post("/dead-letters/redrive", body, at);
    many += deliveries;
    if (!more) return many;
  }
}

function fate(page) {
  const counts = page.app.fates.of(page.queue);
  if (!counts.size) return null;
  const whole = [...counts.values()].reduce((sum, many) => sum + many, 0);
  const parts = Object.keys(TONES).filter((name) => counts.has(name)).map((name) => [name, counts.get(name), TONES[name]]);
  return h("section", { class: "card fate", "aria-label": "What became of those that were redriven" },
    h("div", { class: "card-head" }, h("h2", {}, `${plural(whole, "letter")} redriven`), button("Forget", () => { page.app.fates.clear(page.queue); page.redraw(); }, { class: "quiet" })),
    h("div", { class: "share", "aria-hidden": "true" }, parts.map(([name, many, tone]) => h("i", { key: name, class: tone, style: { width: `${(many / whole) * 100}%` } }))),
    h("p", { class: "legend", role: "status" }, parts.map(([name, many, tone]) => h("span", { key: name, class: tone }, h("i", { "aria-hidden": "true" }), `${name} `, h("b", {}, number(many))))));
}
