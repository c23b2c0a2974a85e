// Redrives dead letters, and shows their progress.

import { api } from "../api.js";
import { ask } from "../dialog.js";
import { h } from "../dom.js";
import { button } from "../parts.js";
import { number, plural } from "../time.js";

const TONES = {
  completed: "good",
  "in progress": "busy",
  waiting: "calm",
  "dead again": "bad",
  cancelled: "calm",
  purged: "calm",
  erased: "calm",
};

const FIELDS = [
  {
    name: "rate",
    label: "Rate limit (per second)",
    type: "number",
    min: 0,
    step: "any",
    inputmode: "decimal",
    hint: "Empty: no limit.",
  },
  { name: "reason", label: "Reason", hint: "Stored in the log with your name.", maxlength: 500 },
];

const checkRate = ({ rate }) =>
  String(rate).trim() === "" || Number(rate) > 0 ? null : "The rate limit must be above 0, or empty.";

const total = (groups) => groups.reduce((sum, group) => sum + group.letters, 0);

export function redriveAll(view) {
  const many = total(view.groups.value.groups);
  redrive(
    view,
    {},
    many,
    `Redrive all ${plural(many, "dead letter")}?`,
    `All dead letters of ‘${view.page.queue}’ are delivered again, the oldest first, with all their attempts.`,
  );
}

export function redriveKind(view, group) {
  redrive(
    view,
    { fingerprint: group.fingerprint },
    group.letters,
    `Redrive ${plural(group.letters, "dead letter")}?`,
    `All dead letters with the error “${group.message}” are delivered to ‘${view.page.queue}’ again, with all their attempts.`,
  );
}

export function redriveSome(view) {
  redrive(
    view,
    { ids: [...view.chosen] },
    view.chosen.size,
    `Redrive ${plural(view.chosen.size, "dead letter")}?`,
    `The selected dead letters are delivered to ‘${view.page.queue}’ again, with all their attempts.`,
  );
}

async function redrive(view, which, most, title, text) {
  const values = await ask({ title, text, action: "Redrive", fields: FIELDS, check: checkRate });
  if (!values) return;
  const body = {
    ...which,
    reason: values.reason,
    rate: String(values.rate).trim() === "" ? null : Number(values.rate),
  };
  await view.page.act(
    () => inSteps(body, view.at(), most),
    (many) => `${plural(many, "dead letter")} redriven.`,
  );
  view.chosen.clear();
}

/** Repeat while the server has more; but stop at `most`, in case they fail as fast as they are redriven. */
async function inSteps(body, at, most) {
  let many = 0;
  try {
    for (let more = true; more && (many < most || many === 0);) {
      const step = await api.post("/dead-letters/redrive", body, at);
      many += step.deliveries;
      more = step.more;
    }
  } catch (error) {
    if (many) error.message += ` ${plural(many, "dead letter")} had been redriven before that.`;
    throw error;
  }
  return many;
}

/** The progress of the dead letters that were redriven while this page was open. */
export function fate(page) {
  const counts = page.app.fates.of(page.queue);
  if (!counts.size) return null;
  const whole = [...counts.values()].reduce((sum, many) => sum + many, 0);
  const parts = Object.keys(TONES)
    .filter((name) => counts.has(name))
    .map((name) => [name, counts.get(name), TONES[name]]);
  return h(
    "section",
    { class: "card fate", "aria-label": "Redriven dead letters" },
    h(
      "div",
      { class: "card-head" },
      h("h2", {}, `${plural(whole, "dead letter")} redriven`),
      button(
        "Dismiss",
        () => {
          page.app.fates.clear(page.queue);
          page.redraw();
        },
        { class: "quiet" },
      ),
    ),
    h(
      "div",
      { class: "share", "aria-hidden": "true" },
      parts.map(([name, many, tone]) =>
        h("i", { key: name, class: tone, style: { width: `${(many / whole) * 100}%` } }),
      ),
    ),
    h(
      "p",
      { class: "legend", role: "status" },
      parts.map(([name, many, tone]) =>
        h("span", { key: name, class: tone }, h("i", { "aria-hidden": "true" }), `${name} `, h("b", {}, number(many))),
      ),
    ),
  );
}
