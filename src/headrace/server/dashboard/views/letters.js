// The dead letters of one error group, with errors and payloads, to select and redrive.

import { h } from "../dom.js";
import { icon } from "../icons.js";
import { button, json, pending, time } from "../parts.js";
import { number, plural } from "../time.js";
import { redriveSome } from "./redrive.js";

export const LETTERS = 20; // on a page

export function unfolded(view) {
  const { page, letters, chosen } = view;
  const waiting = pending(letters, 3);
  if (waiting) return waiting;
  const list = letters.value.dead_letters;
  const all = list.length > 0 && list.every((letter) => chosen.has(letter.id));
  const chooseAll = () => {
    list.forEach((letter) => (all ? chosen.delete(letter.id) : chosen.add(letter.id)));
    page.redraw();
  };
  return h(
    "div",
    { class: letters.busy ? "letters stale" : "letters" },
    page.mayAdminister &&
      h(
        "div",
        { class: "choosing" },
        h(
          "label",
          {},
          h("input", { type: "checkbox", checked: all, onchange: chooseAll }),
          all ? "Deselect all" : "Select all",
        ),
        button(chosen.size ? `Redrive ${number(chosen.size)} selected` : "Redrive selected", () => redriveSome(view), {
          disabled: !chosen.size,
          class: "primary",
        }),
      ),
    h(
      "ul",
      {},
      list.map((letter) => shown(view, letter)),
    ),
    h(
      "nav",
      { class: "pages", "aria-label": "Pages" },
      page.param("before") && button("First page", () => page.change({ before: null })),
      list.length === LETTERS && button("Next page", () => page.change({ before: list.at(-1).id })),
    ),
  );
}

function shown({ page, chosen }, letter) {
  const choose = () => {
    chosen.has(letter.id) ? chosen.delete(letter.id) : chosen.add(letter.id);
    page.redraw();
  };
  const queue = page.queue === "main" ? null : page.queue;
  return h(
    "li",
    { key: String(letter.id), class: "letter" },
    page.mayAdminister &&
      h("input", {
        type: "checkbox",
        "aria-label": `Select ${letter.type} ${letter.id}`,
        checked: chosen.has(letter.id),
        onchange: choose,
      }),
    h(
      "details",
      {},
      h(
        "summary",
        {},
        h("span", { class: "title" }, letter.type),
        h("small", {}, ` ${letter.id}`),
        letter.title !== letter.type && h("span", { class: "hint" }, ` ${letter.title}`),
        h("span", { class: "right" }, `${plural(letter.attempts, "attempt")} · `, time(letter.died_at)),
      ),
      h("p", { class: "reason" }, letter.reason),
      letter.error && h("pre", { class: "error", tabindex: "0", "aria-label": "Error" }, letter.error),
      json(letter.payload),
    ),
    h(
      "a",
      { class: "story", href: page.link(["events", String(letter.id)], { queue }) },
      h("span", {}, "Details"),
      icon("right"),
    ),
  );
}
