// The keyboard: g and a letter go somewhere, j and k go through a list, / searches, ? says all this.

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
  ["/", "Search the events"],
  ["j k", "Next and previous in a list"],
  ["Enter", "Open it"],
  ["r", "Look again now"],
  ["t", "Light, dark, or as the system has it"],
  ["Esc", "Leave a field or a dialog"],
  ["?", "This"],
];

export function help() {
  show(
    "Keyboard",
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
      event.preventDefault(); // which would empty a field for searching
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

/** Move to the next item of the list on the page, or the one before. */
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
