// The overview of a queue: figures, problems, charts, and the live log.

import { api, path } from "../api.js";
import { Charts } from "../chart.js";
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { badge, card, choice, curl, heading, pending, queueChoice, table, terminal, time } from "../parts.js";
import { logarithmic } from "../scales.js";
import { compact, duration, number, percent, rate, short } from "../time.js";
import { target } from "./attention.js";
import { Ticker } from "./ticker.js";

const RANGES = [
  ["15m", "15 min"],
  ["1h", "1 h"],
  ["6h", "6 h"],
  ["24h", "24 h"],
  ["7d", "7 d"],
];
const PERIOD = 60; // seconds that the figures cover
const FEWEST = 24; // points of a chart, even if fewer have data

export function overview(page) {
  const range = () => page.param("range") ?? "15m";
  const at = () => ({ namespace: page.namespace, queue: page.queue });
  const queues = page.watch((signal) => api.get("/queues", { namespace: page.namespace }, signal), 10);
  const stats = page.watch(
    (signal) => api.get(path`/queues/${page.namespace}/${page.queue}/stats`, { period: PERIOD }, signal),
    2,
  );
  const history = page.watch((signal) => api.get("/history", { ...at(), range: range() }, signal), 5);
  const attention = page.watch((signal) => api.get("/attention", { namespace: page.namespace }, signal), 5);
  const shards = page.watch((signal) => api.get("/shards", {}, signal), 5);
  const charts = new Charts(page);
  const ticker = new Ticker(page);
  return () => [
    heading(
      "Overview",
      queueChoice(page, queues),
      choice("Range", RANGES, range(), (value) => page.change({ range: value === "15m" ? null : value })),
    ),
    figures(page, stats),
    theShards(shards),
    findings(page, attention, silent(shards)),
    isNew(stats, history) && welcome(page),
    h(
      "section",
      { class: history.busy ? "charts stale" : "charts", "aria-label": "Over time" },
      pending(history, 6) ?? drawn(charts, history.value),
    ),
    ticker.draw(),
  ];
}

function figures(page, stats) {
  const known = stats.value;
  const figure = (name, value, link, tone = "") =>
    h("a", { class: `figure ${tone}`, href: link, key: name }, h("span", {}, name), h("b", {}, known ? value() : "–"));
  const ended = known ? known.completed + known.failed + known.abandoned : 0;
  const bad = known ? known.failed + known.abandoned : 0;
  const queue = page.queue === "main" ? null : page.queue;
  return h(
    "section",
    { class: "figures", "aria-label": "Now" },
    figure("Waiting", () => short(known.ready), page.link(["events"], { status: "PENDING", queue })),
    figure("In progress", () => short(known.processing), page.link(["events"], { status: "PROCESSING", queue })),
    figure("Claimed ahead", () => short(known.claimed_ahead), page.link(["events"], { status: "PROCESSING", queue })),
    figure("Delayed", () => short(known.delayed), page.link(["events"], { status: "PENDING", queue })),
    figure(
      "Completed per second",
      () => rate(known.completed / PERIOD),
      page.link(["events"], { status: "COMPLETED", queue }),
    ),
    figure(
      "Failure rate",
      () => (ended ? percent(bad / ended) : "0%"),
      page.link(["events"], { status: "FAILED", queue }),
      ended && bad / ended > 0.2 ? "warn" : "",
    ),
    figure(
      "Dead letters",
      () => short(known.dead_letters),
      page.link(["dead"], { queue }),
      known?.dead_letters ? "bad" : "",
    ),
  );
}

/** How many shards do not answer. */
function silent(shards) {
  const known = shards.value;
  return known ? known.shards.filter((one) => !one.answers).length + known.missing.length : 0;
}

/** Nothing where the installation is one database. */
function theShards(shards) {
  const known = shards.value;
  if (!known?.shards.length && !known?.missing.length) return null;
  const down = silent(shards);
  const absent = known.missing.map((server) => ({ server, answers: false }));
  return card(
    down ? `Shards (${number(down)} without an answer)` : "Shards",
    { class: "shards" },
    table(
      "Shards",
      [["Shard"], ["State"], ["Slots of keys", "number wide"], ["Arriving", "number wide"]],
      [...known.shards, ...absent].map((one) => ({
        key: one.server,
        cells: [
          [h("b", {}, one.number ?? "–"), h("small", { class: "below" }, one.server)],
          badge(...(one.answers ? ["answers", "good"] : ["no answer", "bad"])),
          one.slots ?? "–",
          one.arriving ?? "–",
        ],
      })),
    ),
  );
}

function findings(page, attention, down) {
  const list = attention.value?.findings;
  if (!list) return null;
  if (!list.length) {
    if (down) return null; // nobody knows the problems of a shard that does not answer
    return h(
      "section",
      { class: "well", "aria-label": "Problems" },
      icon("good"),
      h("p", {}, "All is well: no problems found."),
    );
  }
  return card(
    `Needs attention (${number(list.length)})`,
    { class: "attention" },
    h(
      "ul",
      {},
      list.map((finding, n) => {
        const link = target(page, finding);
        return h(
          "li",
          { key: `${finding.code}/${finding.namespace}/${finding.queue}/${n}`, class: finding.level },
          h("span", { class: "level" }, finding.level),
          h("p", {}, finding.sentence, finding.since && h("small", {}, " · ", time(finding.since))),
          link &&
            h("a", { href: link, "aria-label": `View: ${finding.sentence}` }, "View", icon("right")),
        );
      }),
    ),
  );
}

function isNew(stats, history) {
  const figures = stats.value;
  const nothing =
    figures &&
    !(
      figures.ready ||
      figures.delayed ||
      figures.processing ||
      figures.claimed_ahead ||
      figures.dead_letters ||
      figures.published
    );
  return (
    nothing &&
    history.value &&
    history.value.points.every((point) => !point.published && !point.completed && !point.depth)
  );
}

function welcome(page) {
  return card(
    "No activity yet",
    { class: "welcome" },
    h("p", {}, "Publish an event to get started:"),
    terminal(curl(page, "/events", '{"type": "order.created", "payload": {"order": 42}}')),
  );
}

/** Whether there is a sample of the queue from then, or something has happened in it. */
const isKnown = (point) => point.depth !== null || point.published > 0 || point.completed > 0;

/** The points since the first with data, so that the first minutes fill the chart. */
function begun(points) {
  const first = points.findIndex(isKnown);
  return points.slice(Math.max(0, Math.min(first, points.length - FEWEST)));
}

function drawn(charts, { step, points: all }) {
  const points = begun(all);
  const times = points.map((point) => Date.parse(point.at));
  const of = (name) => points.map((point) => point[name] ?? null);
  const isOver = (point) => point.seconds >= step / 2; // the last step has just begun
  const each = (name) => points.map((point) => (isOver(point) && isKnown(point) ? point[name] / point.seconds : null));
  const shared = { times, step };
  const latencies = { format: duration, tick: compact, scale: logarithmic, least: 0.01 };
  const latency = (kind) => [
    { name: "p50", tone: "one", values: of(`${kind}_p50`) },
    { name: "p95", tone: "two", values: of(`${kind}_p95`) },
    { name: "p99", tone: "three", values: of(`${kind}_p99`) },
  ];
  return [
    charts.draw({
      ...shared,
      title: "Throughput (per second)",
      format: rate,
      series: [
        { name: "completed", tone: "one", values: each("completed"), area: true },
        { name: "published", tone: "ink", values: each("published") },
      ],
    }),
    charts.draw({
      ...shared,
      title: "Queue depth",
      format: short,
      least: 4,
      series: [{ name: "deliveries", tone: "one", values: of("depth"), area: true }],
    }),
    charts.draw({ ...shared, ...latencies, title: "Queue latency", series: latency("wait") }),
    charts.draw({ ...shared, ...latencies, title: "Run time", series: latency("run") }),
    charts.draw({
      ...shared,
      title: "Failures",
      format: short,
      least: 4,
      bars: true,
      series: [
        { name: "failed", tone: "warn", values: of("failed") },
        { name: "dead", tone: "bad", values: of("dead") },
      ],
    }),
  ];
}
