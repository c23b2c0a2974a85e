// Drawings of 20 by 20, in the colour of the text beside them.

import { h } from "./dom.js";

const PATHS = {
  overview: "M3 16.5V11M8 16.5V6M13 16.5V9M18 16.5V3.5",
  events: "M4 5.5h12M4 10h12M4 14.5h7",
  queues: "M3.5 6.5 10 3l6.5 3.5L10 10zM3.5 10 10 13.5l6.5-3.5M3.5 13.5 10 17l6.5-3.5",
  dead: "M3 10.5 5 4h10l2 6.5v5.5H3zM3 10.5h4l1 2h4l1-2h4",
  workers: "M7 7h6v6H7zM4 4h12v12H4zM8 1.5V4M12 1.5V4M8 16v2.5M12 16v2.5M1.5 8H4M1.5 12H4M16 8h2.5M16 12h2.5",
  schedules: "M10 2.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15M10 6v4.2l2.8 1.8",
  search: "M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11M13 13l4 4",
  pause: "M7 5v10M13 5v10",
  play: "M6.5 4.5 15 10l-8.5 5.5z",
  copy: "M7 7V3.5h9.5V13H13M3.5 7H13v9.5H3.5z",
  right: "M8 5l5 5-5 5",
  left: "M12 5l-5 5 5 5",
  again: "M16 10a6 6 0 1 1-2-4.5M16.5 3v3.5H13",
  light:
    "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M10 1.5v1.5M10 17v1.5M1.5 10H3M17 10h1.5M4 4l1 1M15 15l1 1M4 16l1-1M15 5l1-1",
  dark: "M16.5 11.8A7 7 0 0 1 8.2 3.5a7 7 0 1 0 8.3 8.3z",
  auto: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14M10 3v14M10 6.5h4.8M10 10h6.5M10 13.5h4.8",
  help: "M10 2.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15M7.9 8a2.1 2.1 0 1 1 3.1 1.8c-.7.4-1 .8-1 1.6M10 13.7v.1",
  good: "M4.5 10.5 8.5 14.5 15.5 6",
  alert: "M10 3 18 16.5H2zM10 8v4M10 14.2v.1",
};

export function icon(name) {
  return h("svg", { class: "icon", viewBox: "0 0 20 20", "aria-hidden": "true" }, h("path", { d: PATHS[name] }));
}

export function mark() {
  return h(
    "svg",
    { class: "mark", viewBox: "0 0 24 24", "aria-hidden": "true" },
    h("rect", { width: 24, height: 24, rx: 6 }),
    h("path", {
      d: "M5 8.2c2.3-1.9 4.7-1.9 7 0s4.7 1.9 7 0M5 12.7c2.3-1.9 4.7-1.9 7 0s4.7 1.9 7 0M5 17.2c2.3-1.9 4.7-1.9 7 0s4.7 1.9 7 0",
    }),
  );
}
