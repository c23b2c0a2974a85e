// Follows the log of a namespace: server-sent events read by fetch, so that the token travels in a header.
// After a disconnect it resumes where it was, at once at first, then with growing delays.

import { address, headers, refusal } from "./api.js";

const SILENCE = 25_000; // milliseconds; the server sends a beat every ten seconds
const FIRST_WAIT = 500;
const LONGEST_WAIT = 15_000;
const OUT_OF_DATE = 30_000; // after a longer time in the background it starts from now

export class LogStream {
  /** `told(entries)` gets the entries in batches; `changed()` is called when `live` has changed. */
  constructor(namespace, told, changed) {
    this.namespace = namespace;
    this.told = told;
    this.changed = changed;
    this.live = false;
    this.last = null;
    this.wait = FIRST_WAIT;
    this.stopped = false;
    this.seen = () => this.lookedAt();
    document.addEventListener("visibilitychange", this.seen);
    this.follow();
  }

  stop() {
    this.stopped = true;
    document.removeEventListener("visibilitychange", this.seen);
    this.leave?.abort();
    clearTimeout(this.again);
  }

  /** A hidden page holds no connection: a browser has few for one server. */
  lookedAt() {
    clearTimeout(this.again);
    if (document.hidden) {
      this.hiddenAt = Date.now();
      this.leave?.abort();
    } else {
      if (Date.now() - this.hiddenAt > OUT_OF_DATE) this.last = null;
      this.follow();
    }
  }

  async follow() {
    if (this.stopped || document.hidden) return;
    this.leave?.abort();
    const leave = (this.leave = new AbortController());
    try {
      await this.listen(leave);
      this.wait = FIRST_WAIT;
    } catch {
      if (!leave.signal.aborted || leave.silent) this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
    }
    if (this.leave !== leave || this.stopped) return;
    this.become(false);
    clearTimeout(this.again);
    this.again = setTimeout(() => this.follow(), this.wait);
  }

  async listen(leave) {
    const response = await fetch(address("/events/stream", { namespace: this.namespace }), {
      headers: headers(this.last === null ? {} : { "Last-Event-ID": this.last }),
      signal: leave.signal,
      cache: "no-store",
    });
    if (response.status === 410) this.last = null; // a backup was restored: its log has no such position
    if (!response.ok) throw refusal(response, await response.text());
    this.become(true);
    this.wait = FIRST_WAIT;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const alarm = setTimeout(() => {
        leave.silent = true;
        leave.abort();
      }, SILENCE);
      const { value, done } = await reader.read().finally(() => clearTimeout(alarm));
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      this.read(blocks);
    }
  }

  read(blocks) {
    const entries = [];
    for (const block of blocks) {
      const isEntry = !block.startsWith("event: "); // the other kinds are `rewound` and `waiting`
      for (const line of block.split("\n")) {
        if (line.startsWith("id: ")) this.last = line.slice(4);
        else if (isEntry && line.startsWith("data: ")) entries.push(JSON.parse(line.slice(6)));
      }
    }
    if (entries.length) this.told(entries);
  }

  become(live) {
    if (this.live === live) return;
    this.live = live;
    this.changed();
  }
}
