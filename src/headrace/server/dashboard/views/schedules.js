// Schedules: their state, their next runs and their last.

import { api, path } from "../api.js";
import { ask } from "../dialog.js";
import { h } from "../dom.js";
import { badge, button, curl, empty, heading, pending, table, time } from "../parts.js";
import { fully, shortly } from "../time.js";

const NEXT = 3; // runs that are shown

export function schedules(page) {
  const list = page.watch((signal) => api.get("/schedules", { namespace: page.namespace }, signal), 3);
  return () => [heading("Schedules"), pending(list) ?? shown(page, list.value.schedules)];
}

function shown(page, list) {
  if (!list.length) {
    return empty(
      "No schedules yet",
      "A schedule publishes one event at each of its times, however many servers and nodes run:",
      curl(
        page,
        "/schedules",
        '{"name": "nightly", "cron_expression": "0 2 * * *", "timezone": "Europe/Berlin", "event_type": "report.due"}',
      ),
    );
  }
  return table(
    "Schedules",
    [["Schedule"], ["State"], ["Cron", "wide"], ["Next run", "when"], ["Last run", "when wide"], ["", "actions"]],
    list.map((one) => ({
      key: one.task_id,
      cells: [
        [
          h("span", { class: "title" }, one.name),
          h(
            "small",
            { class: "below" },
            "publishes ",
            h("a", { "data-item": true, href: page.link(["events"], { types: one.event_type }) }, one.event_type),
          ),
        ],
        one.active ? badge("active", "good") : badge("paused", "warn"),
        [h("code", {}, one.cron_expression), h("small", { class: "below" }, one.timezone)],
        next(one),
        time(one.last_fire_at, "never"),
        actions(page, one),
      ],
    })),
  );
}

function next(one) {
  if (!one.active) return h("span", { class: "hint" }, "when resumed");
  const [first, ...others] = one.next_fires.slice(0, NEXT);
  if (!first) return h("span", { class: "hint" }, "none");
  return [
    time(first),
    others.length > 0 && h("small", { class: "below", title: others.map(fully).join("\n") }, `then ${shortly(others)}`),
  ];
}

function actions(page, one) {
  if (!page.mayAdminister) return null;
  const post = (verb) => api.post(path`/schedules/${one.name}/${verb}`, undefined, { namespace: page.namespace });
  const pause = () =>
    ask({
      title: `Pause ‘${one.name}’?`,
      action: "Pause",
      danger: true,
      text: "It does not run until it is resumed. Runs that are due in the meantime are skipped.",
    }).then((yes) => yes && page.act(() => post("pause"), `${one.name} is paused.`));
  const run = () =>
    ask({
      title: `Run ‘${one.name}’ now?`,
      action: "Run now",
      text: `An event of type ${one.event_type} is published now. The next runs stay the same.`,
    }).then(
      (yes) =>
        yes &&
        page.act(
          () => post("run"),
          (event) => `Published as event ${event.id}.`,
        ),
    );
  return [
    button("Run now", run, { "aria-label": `Run ${one.name} now` }),
    one.active
      ? button("Pause", pause, { "aria-label": `Pause ${one.name}` })
      : button("Resume", () => page.act(() => post("resume"), `${one.name} is active again.`), {
          class: "primary",
          "aria-label": `Resume ${one.name}`,
        }),
  ];
}
