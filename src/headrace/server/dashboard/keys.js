// Keyboard shortcuts: g and a letter open a view, j and k move in a list, / searches, ? lists them.

import { h } from "./dom.js";
import { show } from "./dialog.js";

const SEQUENCE = 1200; // milliseconds between g and its letter

const KEYS = [
  ["g o", "Overview"],
  ["g e", "Events"],
  ["g q", "Queues"],
  ["g d", "Dead letters"],
  ["g w", "Workers"],
  ["g s", "Schedules"],
  ["/", "Search events"],
  ["j k", "Next and previous item of a list"],
  ["Enter", "Open the item"],
  ["r", "Refresh"],
  ["t", "Theme: system, light or dark"],
  ["Esc", "Leave a field or dialog"],
  ["?", "Keyboard shortcuts"],
];

export function help() {
  show(
    "Keyboard shortcuts",
    h(
      "dl",
      { class: "keys" },
      KEYS.map(([keys, said]) => [
        h(
          "dt",
          {},
          keys.split(" ").map((key) => [h("kbd", {}, key), " "]),
        ),
        h("dd", {}, said),
      ]),
    ),
  );
}

/** `goTo` gets a letter; `actions` are functions by key. */
export function listen(goTo, actions) {
  let began = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (isTyping(event.target)) {
      if (event.key !== "Escape") return;
      event.preventDefault(); // the browser would clear a search field
      event.target.blur();
      return;
    }
    const isSecond = Date.now() - began < SEQUENCE;
    began = event.key === "g" ? Date.now() : 0;
    const act = isSecond && event.key !== "g" ? () => goTo(event.key) : actions[event.key];
    if (!act || event.key === "g") return;
    event.preventDefault();
    act();
  });
}

function isTyping(element) {
  return element.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
}

/** Move the focus to the next or previous item of the list on the page. */
export function step(by) {
  const items = [...document.querySelectorAll("main [data-item]")].filter((item) => item.offsetParent !== null);
  if (!items.length) return;
  const at = items.findIndex(
    (item) => item === document.activeElement || item.closest("tr, li")?.contains(document.activeElement),
  );
  const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}
