// The live log, slow enough to read: the newest entries, updated once a second, paused under the pointer.

import { h } from "../dom.js";
import { card, choice, empty, holding } from "../parts.js";
import { clock, duration, rate } from "../time.js";

const SHOWN = 12;
const PACE = 1000; // milliseconds
const WINDOW = 10_000; // milliseconds that the rate covers

const WORDS = {
  EMITTED: ["published", "calm"],
  PICKED: ["claimed", "busy"],
  STARTED: ["started", "busy"],
  COMPLETED: ["completed", "good"],
  COMPLETED_WITH_ERRORS: ["completed with errors", "warn"],
  FAILED: ["failed", "warn"],
  DEAD_LETTERED: ["dead", "bad"],
  ABANDONED: ["abandoned", "warn"],
  RELEASED: ["released", "calm"],
  SNOOZED: ["snoozed", "calm"],
  CANCELLED: ["cancelled", "calm"],
  SUPERSEDED: ["superseded", "calm"],
  RESET: ["reset", "calm"],
  REDRIVEN: ["redriven", "busy"],
  RERUN: ["run again", "busy"],
  PURGED: ["purged", "calm"],
  ERASED: ["erased", "calm"],
};
const KINDS = {
  all: () => true,
  finished: ({ action }) => !["EMITTED", "PICKED", "STARTED"].includes(action),
  problems: ({ action }) => ["FAILED", "DEAD_LETTERED", "ABANDONED", "COMPLETED_WITH_ERRORS"].includes(action),
};

/** The word and the tone of an action in the log. */
export const word = (action) => WORDS[action] ?? [action.toLowerCase().replaceAll("_", " "), "calm"];

/** The most useful line of an error: the last of a traceback, else the first. */
export function gist(error) {
  const lines = (error ?? "")
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  return lines[0]?.startsWith("Traceback") ? lines.at(-1) : lines[0];
}

export class Ticker {
  constructor(page) {
    this.page = page;
    this.kind = "finished";
    this.kept = { all: [], finished: [], problems: [] };
    this.shown = null;
    this.counts = [];
    this.since = Date.now();
    page.listen((entries) => this.hear(entries));
  }

  hear(entries) {
    this.counts.push([Date.now(), entries.length]);
    for (const [kind, chosen] of Object.entries(KINDS)) {
      const newest = entries.filter(chosen).slice(-SHOWN).reverse();
      this.kept[kind] = [...newest, ...this.kept[kind]].slice(0, SHOWN);
    }
    if (!this.planned)
      this.planned = setTimeout(() => {
        this.planned = null;
        this.page.redraw();
      }, PACE);
  }

  get rate() {
    const since = Math.max(this.since, Date.now() - WINDOW);
    this.counts = this.counts.filter(([at]) => at >= since);
    return this.counts.reduce((sum, [, many]) => sum + many, 0) / Math.max(1, (Date.now() - since) / 1000);
  }

  draw() {
    const isDue = !this.shown?.length || Date.now() - this.shownAt >= PACE - 50;
    if (!this.shown || (isDue && !this.held)) Object.assign(this, { shown: this.kept[this.kind], shownAt: Date.now() });
    const choose = (kind) => {
      Object.assign(this, { kind, shown: null });
      this.page.redraw();
    };
    const hold = (held) => {
      this.held = held;
      this.page.redraw();
    };
    return card(
      "Live log",
      {
        class: "ticker",
        beside: h(
          "div",
          { class: "beside" },
          h("small", { class: "rate" }, this.held ? "paused" : `${rate(this.rate)} entries per second`),
          choice(
            "Entries",
            [
              ["all", "All"],
              ["finished", "Finished"],
              ["problems", "Problems"],
            ],
            this.kind,
            choose,
          ),
        ),
      },
      this.shown.length
        ? h(
            "ol",
            holding(hold),
            this.shown.map((entry) => this.line(entry)),
          )
        : empty(
            this.kind === "problems" ? "No problems so far" : "No entries yet",
            "New entries appear here.",
          ),
    );
  }

  line(entry) {
    const [said, tone] = word(entry.action);
    const queue = entry.queue && entry.queue !== "main" ? entry.queue : null;
    const ran = entry.execution_time_ms === undefined ? null : duration(entry.execution_time_ms / 1000);
    return h(
      "li",
      { key: String(entry.id) },
      h("time", { datetime: entry.created_at }, clock(entry.created_at)),
      h("span", { class: `word ${tone}` }, said),
      h(
        "a",
        { "data-item": true, href: this.page.link(["events", String(entry.event_id)], { queue }) },
        entry.type ?? "event",
        h("small", {}, ` ${entry.event_id}`),
      ),
      h(
        "span",
        { class: "said" },
        gist(entry.error_message) ?? [ran, entry.worker_id, queue && `in ${queue}`].filter(Boolean).join(" · "),
      ),
    );
  }
}
