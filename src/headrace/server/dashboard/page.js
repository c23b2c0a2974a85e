// The base of a view: data that is polled, actions with their messages, links to other views.

import { Away, Refused, api } from "./api.js";
import { go, hash } from "./router.js";
import { toast } from "./toast.js";

const HURRY = 300; // milliseconds between two requests that log entries cause, at least
const AWAY = 3; // seconds between two requests while the server is away

/** Data that is polled. The last good answer stays until there is a new one. */
class Watched {
  constructor(page, load, seconds) {
    Object.assign(this, { page, load, seconds, value: null, error: null, busy: true });
    this.refresh();
  }

  /** Request now. A pending request is aborted. */
  async refresh() {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.leave?.abort();
    const leave = (this.leave = new AbortController());
    this.askedAt = Date.now();
    this.due = null;
    try {
      const value = await this.load(leave.signal);
      if (leave.signal.aborted) return;
      Object.assign(this, { value, error: null, busy: false });
    } catch (error) {
      if (leave.signal.aborted) return;
      if (this.busy && error instanceof Refused) this.value = null; // it belonged to another view
      Object.assign(this, { error, busy: false });
      if (!(error instanceof Away || error instanceof Refused)) console.error(error);
    }
    this.leave = null;
    this.page.redraw();
    this.plan();
  }

  /** Request soon, because something has happened; but not for every entry. */
  hurry(pause = HURRY) {
    if (this.leave) return;
    const wait = Math.max(0, this.askedAt + pause - Date.now());
    if (this.due && this.due <= Date.now() + wait) return;
    this.planIn(wait);
  }

  /** While held, the data stays as it is; then it catches up. */
  hold(held) {
    this.held = held;
    if (!held) this.catchUp();
    this.page.redraw();
  }

  catchUp() {
    if (!this.overdue || this.held) return;
    this.overdue = false;
    this.refresh();
  }

  /** The address has changed: the data shown is of the one before. */
  renew() {
    this.busy = true;
    this.refresh();
  }

  plan() {
    const seconds = this.error instanceof Away ? AWAY : this.seconds;
    if (seconds) this.planIn(seconds * 1000);
  }

  planIn(milliseconds) {
    clearTimeout(this.timer);
    this.due = Date.now() + milliseconds;
    this.timer = setTimeout(() => {
      this.due = null;
      if (document.hidden || this.held) this.overdue = true;
      else this.refresh();
    }, milliseconds);
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.leave?.abort();
  }

  /** There is no data yet. */
  get loading() {
    return this.value === null && this.error === null;
  }
}

export class Page {
  constructor(app, view, place) {
    this.app = app;
    this.place = place;
    this.watched = [];
    this.listeners = [];
    this.draw = view(this);
  }

  get namespace() {
    return this.app.namespace;
  }

  get queue() {
    return this.param("queue") ?? "main";
  }

  get mayAdminister() {
    return this.app.may("admin");
  }

  param(name) {
    return this.place.params.get(name);
  }

  /** Request now, whenever the address changes, and every `seconds`. */
  watch(load, seconds) {
    const watched = new Watched(this, load, seconds);
    this.watched.push(watched);
    return watched;
  }

  /** Get the entries of the log, in batches. */
  listen(told) {
    this.listeners.push(told);
  }

  told(entries) {
    for (const listener of this.listeners) listener(entries);
  }

  redraw() {
    this.app.redraw();
  }

  /** Request everything again now. */
  refresh() {
    for (const watched of this.watched) watched.refresh();
  }

  /** The same view at another address: other filters, another page. */
  moved(place) {
    this.place = place;
    for (const watched of this.watched) watched.renew();
  }

  seen() {
    for (const watched of this.watched) watched.catchUp();
  }

  stop() {
    for (const watched of this.watched) watched.stop();
  }

  /** The address of a view in this namespace. */
  link(parts, params = {}) {
    const namespace = this.namespace === "default" ? null : this.namespace;
    return hash(parts, { ...params, namespace });
  }

  go(parts, params) {
    go(this.link(parts, params));
  }

  /** Change parameters of the address; null removes one. */
  change(params, { replace = false } = {}) {
    go(hash(this.place.parts, { ...Object.fromEntries(this.place.params), ...params }), { replace });
  }

  /** Run an action, show a message, then refresh. Returns the result of `work`, or undefined. */
  async act(work, said) {
    try {
      const done = await work(api);
      toast(typeof said === "function" ? said(done) : said);
      return done ?? true;
    } catch (error) {
      toast(error.message, { bad: true });
      return undefined;
    } finally {
      this.refresh();
    }
  }
}
