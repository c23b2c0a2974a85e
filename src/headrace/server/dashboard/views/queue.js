// One queue: its settings, its figures, its last hour.

import { api, path } from "../api.js";
import { Charts } from "../chart.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { button, card, empty, facts, pending, time } from "../parts.js";
import { duration, fully, number, rate, short } from "../time.js";
import { change, controls } from "./queue_actions.js";
import { shown } from "./queue_settings.js";
import { depth, filter, state } from "./queues.js";

export function queue(page) {
  const name = page.place.parts[1];
  const where = path`/queues/${page.namespace}/${name}`;
  const settings = page.watch((signal) => api.get(where, {}, signal), 3);
  const stats = page.watch((signal) => api.get(`${where}/stats`, { period: 300 }, signal), 3);
  const limits = page.watch((signal) => api.get(`${where}/limits`, {}, signal), 3);
  const history = page.watch(
    (signal) => api.get("/history", { namespace: page.namespace, queue: name, range: "1h" }, signal),
    10,
  );
  const charts = new Charts(page);
  const its = name === "main" ? null : name;
  return () => {
    const known = settings.value;
    return [
      h("p", { class: "crumbs" }, h("a", { href: page.link(["queues"]) }, icon("left"), "Queues")),
      h(
        "div",
        { class: "heading" },
        h("h1", { id: "heading", tabindex: "-1" }, name),
        h("div", { class: "beside" }, known && [state(known), controls(page, known)]),
      ),
      settings.error?.status === 404
        ? empty("Queue not found", "It may have been deleted.")
        : (pending(settings, 6) ?? [
            figures(page, stats.value, its),
            h(
              "section",
              { class: "charts", "aria-label": "Last hour" },
              history.value && drawn(charts, history.value),
            ),
            h(
              "div",
              { class: "columns" },
              card(
                "Settings",
                { class: "main-column", beside: page.mayAdminister && button("Edit", () => change(page, known)) },
                facts(rules(known)),
                known.limits && limited(limits.value?.limits ?? []),
              ),
              card(
                "Related",
                { class: "side-column" },
                h(
                  "ul",
                  { class: "ways" },
                  h("li", {}, h("a", { href: page.link(["events"], { queue: its }) }, "Events", icon("right"))),
                  h("li", {}, h("a", { href: page.link(["dead"], { queue: its }) }, "Dead letters", icon("right"))),
                  h(
                    "li",
                    {},
                    h("a", { href: page.link(["workers"], { queue: its }) }, "Workers", icon("right")),
                  ),
                  h("li", {}, h("a", { href: page.link(["overview"], { queue: its }) }, "Metrics", icon("right"))),
                ),
              ),
            ),
          ]),
    ];
  };
}

function rules(known) {
  return [
    ["Filter", filter(known)],
    ["Queue depth", depth(known)],
    ...shown(known),
    ["Created", [time(known.created_at), h("small", {}, ` ${fully(known.created_at)}`)]],
  ];
}

const of = (some, all) => (all === null ? "–" : `${number(some)} of ${number(all)}`);

/** The groups that have a limit, those that wait for room first. */
function limited(groups) {
  if (!groups.length) return h("p", {}, "Nothing waits for a limit, and nothing of a limited group is in progress.");
  return h(
    "table",
    { "aria-label": "Limits" },
    h("thead", {}, h("tr", {}, ...["Group", "In progress", "Room", "Waiting"].map((said) => h("th", {}, said)))),
    h(
      "tbody",
      {},
      groups.map((group) =>
        h(
          "tr",
          { key: `${group.scope} ${group.name}` },
          h("td", {}, `${group.scope} ${group.name}`),
          h("td", {}, of(group.in_progress, group.at_once)),
          h("td", {}, number(group.room)),
          h("td", {}, group.waiting ? [number(group.waiting), h("small", {}, " since "), time(group.waiting_since)] : "–"),
        ),
      ),
    ),
  );
}

function figures(page, known, queue) {
  const figure = (name, value, href) =>
    h("a", { class: "figure", href, key: name }, h("span", {}, name), h("b", {}, known ? value() : "–"));
  return h(
    "section",
    { class: "figures", "aria-label": "Now" },
    figure("Waiting", () => short(known.ready), page.link(["events"], { status: "PENDING", queue })),
    figure("In progress", () => short(known.processing), page.link(["events"], { status: "PROCESSING", queue })),
    figure("Claimed ahead", () => short(known.claimed_ahead), page.link(["events"], { status: "PROCESSING", queue })),
    figure("Delayed", () => short(known.delayed), page.link(["events"], { status: "PENDING", queue })),
    figure("Completed in 5 min", () => short(known.completed), page.link(["events"], { status: "COMPLETED", queue })),
    figure(
      "Average run time",
      () => (known.average_ms === null ? "–" : duration(known.average_ms / 1000)),
      page.link(["overview"], { queue }),
    ),
    figure("Dead letters", () => short(known.dead_letters), page.link(["dead"], { queue })),
  );
}

function drawn(charts, { step, points }) {
  const shared = { times: points.map((point) => Date.parse(point.at)), step };
  return [
    charts.draw({
      ...shared,
      title: "Completed (per second)",
      format: rate,
      series: [
        {
          name: "completed",
          tone: "one",
          area: true,
          values: points.map((point) => (point.seconds < step / 2 ? null : point.completed / point.seconds)),
        },
      ],
    }),
    charts.draw({
      ...shared,
      title: "Queue depth",
      format: short,
      least: 4,
      series: [{ name: "deliveries", tone: "one", area: true, values: points.map((point) => point.depth ?? null) }],
    }),
  ];
}
