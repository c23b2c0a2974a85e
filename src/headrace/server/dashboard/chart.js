// Charts over time: lines and areas in plain SVG, with one crosshair for all charts of a view.

import { h } from "./dom.js";
import { linear } from "./scales.js";
import { clock, dated, day, minute } from "./time.js";

const HEIGHT = 148;
const TOP = 14;
const BOTTOM = 20;

/** The charts of a view: they share the time and the crosshair. */
export class Charts {
  constructor(page) {
    this.page = page;
    this.widths = new Map();
    this.at = null;
    this.sizes = new ResizeObserver((seen) => {
      for (const { target, contentRect } of seen) this.widths.set(target.dataset.chart, Math.round(contentRect.width));
      page.redraw();
    });
  }

  look(at) {
    if (this.at === at) return;
    this.at = at;
    this.page.redraw();
  }

  /**
   * One chart. `series`: [{name, tone, values, area}], each with a value or null for every point of `times` (milliseconds).
   * `format` writes a value, `tick` one at the axis; `scale` is one of scales.js, with the `least` it shows.
   */
  draw({ title, series, times, step, format, tick = format, scale: kind = linear, least = 1, bars = false }) {
    const width = this.widths.get(title) ?? 0;
    const known = series.flatMap((one) => one.values).filter((value) => value !== null);
    const { part, ticks } = kind(known, least);
    const scale = {
      x: (n) => (times.length < 2 ? 0 : (n / (times.length - 1)) * width),
      y: (value) => HEIGHT - BOTTOM - part(value) * (HEIGHT - TOP - BOTTOM),
    };
    const at = this.at === null ? null : Math.min(this.at, times.length - 1);
    return h(
      "figure",
      { class: "chart", key: title },
      h("figcaption", {}, h("h2", {}, title), legend(series, at, times, step, format)),
      h(
        "div",
        {
          class: "plot",
          "data-chart": title,
          mounted: (element) => this.sizes.observe(element),
          ...this.pointing(title, series, times, width, at, step, format),
        },
        width > 0 &&
          h(
            "svg",
            { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" },
            grid(ticks, scale, width),
            axis(times, scale, width, step),
            series.map((one) =>
              bars ? columns(one, scale, width, times.length) : [one.area && area(one, scale), line(one, scale)],
            ),
            ticks.map((value) => h("text", { class: "tick", x: 0, y: scale.y(value) - 4 }, tick(value))),
            at !== null && crosshair(series, at, scale),
          ),
      ),
    );
  }

  /** By pointer, by touch, and by the arrow keys. */
  pointing(title, series, times, width, at, step, format) {
    const last = times.length - 1;
    const move = (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      this.look(Math.max(0, Math.min(last, Math.round(((event.clientX - box.left) / box.width) * last))));
    };
    const key = (event) => {
      const from = this.at ?? last;
      const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.look(Math.max(0, Math.min(last, to)));
    };
    const place = at ?? last;
    const said = series.map((one) => `${one.name} ${say(one.values[place], format)}`).join(", ");
    return {
      role: "slider",
      tabindex: "0",
      "aria-label": `${title} over time`,
      "aria-valuemin": "0",
      "aria-valuemax": String(Math.max(0, last)),
      "aria-valuenow": String(Math.max(0, place)),
      "aria-valuetext": times.length ? `${moment(times[place], step)}: ${said}` : "no data",
      onpointermove: move,
      onpointerdown: move,
      onpointerleave: () => this.look(null),
      onkeydown: key,
      onblur: () => this.look(null),
    };
  }
}

const say = (value, format) => (value === null || value === undefined ? "–" : format(value));
const moment = (at, step) => (step < 60 ? clock(at) : dated(at));

function legend(series, at, times, step, format) {
  return h(
    "div",
    { class: "legend" },
    series.map((one) =>
      h(
        "span",
        { key: one.name, class: one.tone },
        h("i", { "aria-hidden": "true" }),
        `${one.name} `,
        h("b", {}, say(at === null ? lastKnown(one.values) : one.values[at], format)),
      ),
    ),
    at !== null && h("span", { class: "when" }, moment(times[at], step)),
  );
}

function lastKnown(values) {
  for (let n = values.length - 1; n >= 0; n -= 1) if (values[n] !== null) return values[n];
  return null;
}

function grid(ticks, scale, width) {
  const across = (value, kind) =>
    h("line", { class: kind, x1: 0, x2: width, y1: scale.y(value) + 0.5, y2: scale.y(value) + 0.5 });
  return [across(0, "grid base"), ticks.map((value) => across(value, "grid"))];
}

const STEPS = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map((seconds) => seconds * 1000);

/** Round times, as many as there is room for. */
function axis(times, scale, width, step) {
  if (times.length < 2) return null;
  const [first, last] = [times[0], times.at(-1)];
  const room = Math.max(2, Math.floor(width / 90));
  const every = STEPS.find((one) => (last - first) / one <= room) ?? STEPS.at(-1);
  const shift = new Date(first).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((first - shift) / every) * every + shift; at <= last; at += every) {
    const x = scale.x((at - first) / (step * 1000));
    if (x > 18 && x < width - 18)
      ticks.push(
        h(
          "text",
          { class: "tick", key: `${at}`, x, y: HEIGHT - 5, "text-anchor": "middle" },
          every >= 86_400_000 ? day(at) : minute(at),
        ),
      );
  }
  return ticks;
}

/** The stretches of a series without gaps, as lists of [x, y]. */
function stretches(values, scale) {
  const found = [];
  let current = null;
  values.forEach((value, n) => {
    if (value === null) current = null;
    else {
      if (!current) found.push((current = []));
      current.push([scale.x(n), scale.y(value)]);
    }
  });
  return found;
}

const points = (stretch) => stretch.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");

/** A stretch of one point is a dot. */
function line(one, scale) {
  const found = stretches(one.values, scale);
  const lines = found
    .filter((stretch) => stretch.length > 1)
    .map((stretch) => `M${points(stretch)}`)
    .join("");
  const dots = found
    .filter((stretch) => stretch.length === 1)
    .map((stretch) => `M${points(stretch)}h.01`)
    .join("");
  return [h("path", { class: `line ${one.tone}`, d: lines }), h("path", { class: `line dots ${one.tone}`, d: dots })];
}

function area(one, scale) {
  const base = scale.y(0).toFixed(1);
  const d = stretches(one.values, scale)
    .filter((stretch) => stretch.length > 1)
    .map(
      (stretch) => `M${stretch[0][0].toFixed(1)} ${base}L${points(stretch)}L${stretch.at(-1)[0].toFixed(1)} ${base}Z`,
    )
    .join("");
  return h("path", { class: `area ${one.tone}`, d });
}

function columns(one, scale, width, many) {
  const thick = Math.max(1, Math.min(10, (width / many) * 0.7));
  const base = scale.y(0);
  const d = one.values
    .map((value, n) => {
      if (!value) return "";
      const x = Math.max(thick / 2, Math.min(width - thick / 2, scale.x(n)));
      return `M${(x - thick / 2).toFixed(1)} ${base.toFixed(1)}V${scale.y(value).toFixed(1)}h${thick.toFixed(1)}V${base.toFixed(1)}Z`;
    })
    .join("");
  return h("path", { class: `column ${one.tone}`, d });
}

function crosshair(series, at, scale) {
  const x = scale.x(at);
  return [
    h("line", { class: "cross", x1: x, x2: x, y1: TOP - 6, y2: HEIGHT - BOTTOM }),
    series
      .filter((one) => one.values[at] !== null && one.values[at] !== undefined)
      .map((one) => h("circle", { class: `point ${one.tone}`, cx: x, cy: scale.y(one.values[at]), r: 3 })),
  ];
}
