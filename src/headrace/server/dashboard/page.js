// What a view stands on: data that is watched, actions that are told of, the way to other places.

import { Away, Refused, api } from "./api.js";
import { go, hash } from "./router.js";
import { toast } from "./toast.js";

const HURRY = 300; // milliseconds between two looks that news cause, at least
const AWAY = 3; // seconds between two looks while the server is away

/** Something that is asked for again and again. The last good answer stays until there is a better one. */
class Watched {
  constructor(page, load, seconds) {
    Object.assign(this, { page, load, seconds, value: null, error: null, busy: true });
    this.refresh();
  }

  /** Look now. What was being asked for is not waited for any more. */
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
      if (this.busy && error instanceof Refused) this.value = null; // it was another place's
      Object.assign(this, { error, busy: false });
      if (!(error instanceof Away || error instanceof Refused)) console.error(error);
    }
    this.leave = null;
    this.page.redraw();
    this.plan();
  }

  /** Look soon, because something has happened; but not for every such thing. */
  hurry(pause = HURRY) {
    if (this.leave) return;
    const wait = Math.max(0, this.askedAt + pause - Date.now());
    if (this.due && this.due <= Date.now() + wait) return;
    this.planIn(wait);
  }

  /** While somebody is at it, it stays as it is; then it is looked at what was missed. */
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

  /** The place has changed: what is shown is what was asked for before. */
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

  /** Nothing is known yet. */
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

  /** Ask now, whenever the place changes, and every so many seconds. */
  watch(load, seconds) {
    const watched = new Watched(this, load, seconds);
    this.watched.push(watched);
    return watched;
  }

  /** Be told what the log says, in lots. */
  listen(told) {
    this.listeners.push(told);
  }

  told(entries) {
    for (const listener of this.listeners) listener(entries);
  }

  redraw() {
    this.app.redraw();
  }

  /** Everything is looked at again, now. */
  refresh() {
    for (const watched of this.watched) watched.refresh();
  }

  /** The same view at another place: other filters, another page. */
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

  /** The address of another place in this namespace. */
  link(parts, params = {}) {
    const namespace = this.namespace === "default" ? null : this.namespace;
    return hash(parts, { ...params, namespace });
  }

  go(parts, params) {
    go(this.link(parts, params));
  }

  /** Change parameters of this place; null removes one. */
  change(params, { replace = false } = {}) {
    go(hash(this.place.parts, { ...Object.fromEntries(this.place.params), ...params }), { replace });
  }

  /** Do something and tell how it went; then look at everything again. Gives what `work` gave, or undefined. */
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
