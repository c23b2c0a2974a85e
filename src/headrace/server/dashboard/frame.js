// The frame of every view: navigation, namespace, connection; and the form that asks for a token.

import { h } from "./dom.js";
import { icon, mark } from "./icons.js";
import { help } from "./keys.js";
import { empty, heading } from "./parts.js";
import { go, hash } from "./router.js";
import { deadLetters } from "./views/dead.js";
import { event } from "./views/event.js";
import { events } from "./views/events.js";
import { overview } from "./views/overview.js";
import { queue } from "./views/queue.js";
import { queues } from "./views/queues.js";
import { schedules } from "./views/schedules.js";
import { workers } from "./views/workers.js";

/** By the first part of a place: its name, the letter behind g, and the view for the rest of the place. */
export const VIEWS = {
  __proto__: null, // a place may be called `constructor`
  overview: { name: "Overview", icon: "overview", letter: "o", view: () => overview },
  events: { name: "Events", icon: "events", letter: "e", view: ({ parts }) => (parts.length > 1 ? event : events) },
  queues: { name: "Queues", icon: "queues", letter: "q", view: ({ parts }) => (parts.length > 1 ? queue : queues) },
  dead: { name: "Dead letters", short: "Dead", icon: "dead", letter: "d", view: () => deadLetters },
  workers: { name: "Workers", icon: "workers", letter: "w", view: () => workers },
  schedules: { name: "Schedules", icon: "schedules", letter: "s", view: () => schedules },
};

export function frame(app) {
  const here = VIEWS[app.place.parts[0]] ? app.place.parts[0] : "overview";
  document.title = `${title(app, here)} · Headrace`;
  return [
    h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to content"),
    h(
      "header",
      { class: "side" },
      h("a", { class: "brand", href: hash([]), "aria-label": "Headrace, overview" }, mark(), h("span", {}, "Headrace")),
      namespaces(app),
      h(
        "nav",
        { "aria-label": "Views" },
        Object.entries(VIEWS).map(([name, view]) =>
          h(
            "a",
            {
              key: name,
              href: link(app, name),
              "aria-current": name === here ? "page" : null,
              title: `${view.name} (g ${view.letter})`,
            },
            icon(view.icon),
            h("span", { class: "long" }, view.name),
            h("span", { class: "short", "aria-hidden": "true" }, view.short ?? view.name),
          ),
        ),
      ),
      h(
        "div",
        { class: "foot" },
        live(app),
        h("div", { class: "tools" }, theme(app), helpButton(), leave(app)),
        version(app),
      ),
    ),
    h("main", { id: "main", tabindex: "-1" }, away(app), content(app)),
  ];
}

function content(app) {
  if (app.page) return app.page.draw();
  if (app.missing) {
    const why = "It was deleted or never created, or your token does not allow it. Choose another one:";
    return [heading("Namespace not found"), empty(`Namespace ‘${app.namespace}’ does not exist`, why), others(app)];
  }
  return h("p", { class: "waiting" }, app.away ? "" : "Loading …");
}

/** The namespaces that exist, for a visitor of one that does not. */
function others(app) {
  const names = app.namespaces.map((one) => one.name);
  if (!names.length) return null;
  return h(
    "ul",
    { class: "others", "aria-label": "Namespaces" },
    names.map((name) => h("li", { key: name }, h("a", { href: inNamespace(app, name) }, name))),
  );
}

function title(app, here) {
  const [, second] = app.place.parts;
  return second ? `${second} · ${VIEWS[here].name}` : VIEWS[here].name;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function link(app, name) {
  return hash([name], { namespace: app.namespace === "default" ? null : app.namespace });
}

/** The same view of another namespace. */
function inNamespace(app, name) {
  return hash([app.place.parts[0] ?? "overview"], { namespace: name === "default" ? null : name });
}

function namespaces(app) {
  const names = (app.namespaces ?? []).map((one) => one.name);
  if (!names.includes(app.namespace)) names.push(app.namespace);
  const choose = (event) => go(inNamespace(app, event.target.value));
  return h(
    "label",
    { class: "namespace" },
    h("span", {}, "Namespace"),
    h(
      "select",
      { onchange: choose, onfocus: () => app.learnNamespaces().catch(() => {}), value: app.namespace },
      names.map((name) => h("option", { key: name, value: name, selected: name === app.namespace }, name)),
    ),
  );
}

function live(app) {
  if (app.missing) return h("p", { class: "live", title: "There is no log to follow." }, "Not live");
  const is = Boolean(app.stream?.live) && !app.away;
  return h(
    "p",
    {
      class: is ? "live on" : "live",
      title: is ? "The page follows the log." : "The page does not follow the log at the moment.",
    },
    h("i", { "aria-hidden": "true" }),
    is ? "Live" : "Connecting …",
  );
}

function theme(app) {
  const chosen = window.theme.chosen;
  const said = { auto: "system", light: "light", dark: "dark" }[chosen];
  return h(
    "button",
    {
      class: "quiet",
      onclick: () => app.turn(),
      "aria-label": `Theme: ${said}. Change`,
      title: `Theme: ${said} (t)`,
    },
    icon(chosen),
  );
}

function helpButton() {
  return h(
    "button",
    { class: "quiet", onclick: help, "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)" },
    icon("help"),
  );
}

function leave(app) {
  if (!app.me || app.me.open) return null;
  return h(
    "button",
    { class: "quiet leave", onclick: () => app.leave(), title: `Forget the token ${app.me.name}` },
    "Sign out",
  );
}

function version(app) {
  return app.me && h("p", { class: "version" }, h("a", { href: "/docs" }, "API"), ` · ${app.me.version}`);
}

function away(app) {
  if (!app.away) return null;
  return h(
    "div",
    { class: "banner", role: "status" },
    icon("alert"),
    h(
      "p",
      {},
      h("strong", {}, app.away.message),
      " You see the last known data. The page reconnects by itself.",
    ),
  );
}

/** The form that asks for a token. */
export function lock(app) {
  document.title = "Headrace";
  const { wrong, trying } = app.locked;
  const submit = (event) => {
    event.preventDefault();
    const text = event.target.elements.token.value.trim();
    if (text) app.unlock(text);
  };
  return h(
    "main",
    { class: "door", key: "door" },
    h(
      "form",
      { onsubmit: submit },
      mark(),
      h("h1", {}, "This server requires a token"),
      h("p", {}, "The token is stored for this tab only, until you close it."),
      h("label", { for: "token" }, "Token"),
      h("input", {
        id: "token",
        name: "token",
        type: "password",
        autocomplete: "off",
        spellcheck: "false",
        placeholder: "hr_…",
        "aria-invalid": wrong ? "true" : null,
        "aria-describedby": "token-hint",
        mounted: (element) => element.focus(),
      }),
      app.away
        ? h("p", { class: "wrong", role: "alert" }, `${app.away.message} Retrying …`)
        : wrong && !trying && h("p", { class: "wrong", role: "alert" }, app.locked.message),
      h(
        "button",
        { class: "primary", disabled: Boolean(trying) && !app.away },
        trying && !app.away ? "Checking …" : "Sign in",
      ),
      h("p", { id: "token-hint", class: "hint" }, "An administrator of the server can create one:"),
      h("pre", {}, "headrace tokens create me --scope admin"),
    ),
  );
}
