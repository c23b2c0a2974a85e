// The application: the view, the namespace, and the connection to the server.

import { api, listener, token } from "./api.js";
import { render } from "./dom.js";
import { Fates } from "./fate.js";
import { frame, lock, VIEWS } from "./frame.js";
import { help, listen, step } from "./keys.js";
import { Page } from "./page.js";
import { go, hash, place } from "./router.js";
import { LogStream } from "./stream.js";

const AGAIN = 2000; // milliseconds between two attempts to start
const THEMES = ["auto", "light", "dark"];

class App {
  constructor() {
    this.me = null; // the caller, and its scopes
    this.namespaces = null;
    this.away = null;
    this.locked = null;
    this.fates = new Fates();
    listener.away = (error) => this.become({ away: error });
    listener.answered = () => this.away && this.become({ away: null });
    listener.locked = (error) => this.lock(error);
    addEventListener("hashchange", () => this.move());
    document.addEventListener("visibilitychange", () => !document.hidden && this.page?.seen());
    setInterval(() => !document.hidden && this.redraw(), 1000); // "3 s ago"
    listen((letter) => this.goTo(letter), {
      "/": () => this.search(),
      "?": help,
      j: () => step(1),
      k: () => step(-1),
      r: () => this.page?.refresh(),
      t: () => this.turn(),
    });
  }

  get namespace() {
    return this.place.params.get("namespace") ?? "default";
  }

  may(scope) {
    return this.me !== null && (this.me.open || this.me.scopes.includes(scope) || this.me.scopes.includes("admin"));
  }

  /** Learn the identity of the caller; nothing is shown before that. */
  async start() {
    clearTimeout(this.starting);
    this.place = place();
    this.redraw();
    try {
      this.me = await api.get("/whoami");
      if (!this.may("read")) return this.refuse();
      this.namespaces = (await api.get("/namespaces")).namespaces;
    } catch (error) {
      if (error.status === 401) return; // the form for a token is open
      this.become({ away: error });
      this.starting = setTimeout(() => this.start(), AGAIN);
      return;
    }
    this.locked = null;
    this.settle();
    this.move();
  }

  /** A caller that may not see the default namespace starts in one that it may see. */
  settle() {
    const names = this.namespaces.map((one) => one.name);
    if (this.place.params.has("namespace") || names.includes("default") || !names.length) return;
    go(hash(this.place.parts, { ...Object.fromEntries(this.place.params), namespace: names[0] }), { replace: true });
  }

  /** Show the view of the address. */
  async move() {
    if (this.locked || !this.me) return;
    const before = this.place;
    this.place = place();
    if (!this.isThere()) await this.learnNamespaces().catch(() => {}); // the namespace may be new
    this.missing = !this.isThere();
    if (this.missing) return this.leavePage();
    const [name = "overview"] = this.place.parts;
    const view = (VIEWS[name] ?? VIEWS.overview).view(this.place);
    const isSame =
      this.page &&
      this.view === view &&
      before.parts.join("/") === this.place.parts.join("/") &&
      this.shown === this.namespace;
    this.follow();
    if (isSame) {
      this.page.moved(this.place);
    } else {
      const isFirst = !this.page;
      this.page?.stop();
      Object.assign(this, { view, shown: this.namespace });
      this.page = new Page(this, view, this.place);
      if (!isFirst) this.arrived = true;
    }
    this.redraw();
  }

  isThere() {
    return this.namespaces.some((one) => one.name === this.namespace);
  }

  leavePage() {
    this.page?.stop();
    this.stream?.stop();
    Object.assign(this, { page: null, stream: null });
    this.redraw();
  }

  /** Follow the log of the namespace that is shown. */
  follow() {
    if (this.stream?.namespace === this.namespace) return;
    this.stream?.stop();
    this.fates.forget();
    this.stream = new LogStream(
      this.namespace,
      (entries) => {
        this.fates.see(entries);
        this.page?.told(entries);
      },
      () => this.redraw(),
    );
  }

  async learnNamespaces() {
    this.namespaces = (await api.get("/namespaces")).namespaces;
    this.redraw();
  }

  /** The token is valid, but may not read. */
  refuse() {
    this.lock(new Error(`The token ${this.me.name} lacks the scope read: use another token.`));
  }

  lock(error) {
    const wrong = token.value !== null;
    token.value = null;
    this.leavePage();
    this.me = null;
    this.become({ locked: { wrong, message: error.message } });
  }

  unlock(text) {
    token.value = text;
    this.locked = { ...this.locked, trying: true };
    this.start();
  }

  leave() {
    token.value = null;
    location.reload();
  }

  goTo(letter) {
    const found = Object.entries(VIEWS).find(([, view]) => view.letter === letter);
    if (found && this.page) this.page.go([found[0]]);
  }

  search() {
    const field = document.getElementById("search");
    if (field) field.focus();
    else if (this.page) {
      this.page.go(["events"]);
      this.wantsSearch = true;
    }
  }

  turn() {
    const { theme } = window;
    theme.choose(THEMES[(THEMES.indexOf(theme.chosen) + 1) % THEMES.length]);
    this.redraw();
  }

  become(state) {
    Object.assign(this, state);
    this.redraw();
  }

  /** Draw once before the next frame, however often this is called. */
  redraw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      render(document.getElementById("app"), this.locked ? lock(this) : frame(this));
      this.settleFocus();
    });
  }

  settleFocus() {
    if (this.wantsSearch && document.getElementById("search")) {
      this.wantsSearch = false;
      document.getElementById("search").focus();
    } else if (this.arrived) {
      document.getElementById("heading")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
    this.arrived = false;
  }
}

new App().start();
