// Dead letters grouped by error, and the progress of those that were redriven.

import { api } from "../api.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { button, empty, heading, pending, queueChoice, tags, time } from "../parts.js";
import { number, plural } from "../time.js";
import { LETTERS, unfolded } from "./letters.js";
import { fate, redriveAll, redriveKind } from "./redrive.js";

export function deadLetters(page) {
  const at = () => ({ namespace: page.namespace, queue: page.queue });
  const chosen = new Set();
  const queues = page.watch((signal) => api.get("/queues", { namespace: page.namespace }, signal), 30);
  const groups = page.watch((signal) => api.get("/dead-letters/groups", at(), signal), 5);
  const letters = page.watch(
    (signal) =>
      opened(page) === null
        ? Promise.resolve({ dead_letters: [] })
        : api.getExactly(
            "/dead-letters",
            { ...at(), fingerprint: opened(page), limit: LETTERS, before: page.param("before"), payload: true },
            signal,
          ),
    5,
  );
  page.listen((entries) => {
    if (!entries.some(({ action }) => action === "DEAD_LETTERED" || action === "REDRIVEN")) return;
    groups.hurry(1000);
    letters.hurry(1000);
  });
  const view = { page, at, chosen, groups, letters };
  return () => [
    heading(
      "Dead letters",
      queueChoice(page, queues),
      page.mayAdminister && groups.value?.groups.length > 0 && button("Redrive all", () => redriveAll(view)),
    ),
    fate(page),
    pending(groups) ?? kinds(view),
  ];
}

const opened = (page) => page.param("group");

function kinds(view) {
  const { page, groups } = view;
  const list = groups.value.groups;
  if (!list.length)
    return empty(
      "No dead letters",
      "An event whose attempts all failed is kept here, with its error, until you redrive it.",
    );
  return h(
    "ul",
    { class: "groups" },
    list.map((group) => kind(view, group, opened(page) === group.fingerprint)),
  );
}

function kind(view, group, isOpen) {
  const { page, chosen } = view;
  if (group.fingerprint === null) return erased(group);
  const turn = () => {
    chosen.clear();
    page.change({ group: isOpen ? null : group.fingerprint, before: null });
  };
  return h(
    "li",
    { key: String(group.fingerprint), class: isOpen ? "card group open" : "card group" },
    h(
      "div",
      { class: "group-head" },
      h(
        "button",
        { type: "button", class: "unfold", "aria-expanded": String(isOpen), "data-item": true, onclick: turn },
        icon("right"),
        h("b", { class: "many" }, number(group.letters)),
        h("span", { class: "message" }, group.message || "no message"),
      ),
      page.mayAdminister &&
        button("Redrive", () => redriveKind(view, group), {
          "aria-label": `Redrive ${plural(group.letters, "dead letter")}: ${group.message}`,
        }),
    ),
    h(
      "p",
      { class: "group-facts" },
      tags(group.types),
      h("small", {}, "first ", time(group.first_died_at), ", last ", time(group.last_died_at)),
    ),
    isOpen && unfolded(view),
  );
}

/** Dead letters whose errors were erased have no group. */
function erased(group) {
  return h(
    "li",
    { key: "erased", class: "card group" },
    h(
      "p",
      { class: "group-head" },
      h("span", { class: "message" }, h("b", { class: "many" }, number(group.letters)), " with an erased error"),
    ),
  );
}
