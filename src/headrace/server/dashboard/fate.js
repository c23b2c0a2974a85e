// The progress of redriven dead letters, as far as this page has seen it in the log.

const ENDS = {
  COMPLETED: "completed",
  COMPLETED_WITH_ERRORS: "completed",
  DEAD_LETTERED: "dead again",
  CANCELLED: "cancelled",
  PURGED: "purged",
  ERASED: "erased",
};
const MOST = 20_000; // events; older ones are forgotten

export class Fates {
  constructor() {
    this.forget();
  }

  forget() {
    this.byQueue = new Map();
  }

  see(entries) {
    for (const entry of entries) {
      if (entry.action === "REDRIVEN") this.begin(entry);
      else this.byQueue.get(entry.queue)?.has(entry.event_id) && this.goOn(entry);
    }
  }

  begin(entry) {
    if (!this.byQueue.has(entry.queue)) this.byQueue.set(entry.queue, new Map());
    const fates = this.byQueue.get(entry.queue);
    fates.delete(entry.event_id);
    fates.set(entry.event_id, "waiting");
    if (fates.size > MOST) fates.delete(fates.keys().next().value);
  }

  goOn(entry) {
    const fates = this.byQueue.get(entry.queue);
    if (entry.action === "PICKED") fates.set(entry.event_id, "in progress");
    else if (["FAILED", "RELEASED", "SNOOZED", "ABANDONED", "RESET"].includes(entry.action)) fates.set(entry.event_id, "waiting");
    else if (ENDS[entry.action]) fates.set(entry.event_id, ENDS[entry.action]);
  }

  /** The number of redriven dead letters of a queue in each state. */
  of(queue) {
    const counts = new Map();
    for (const fate of this.byQueue.get(queue)?.values() ?? []) counts.set(fate, (counts.get(fate) ?? 0) + 1);
    return counts;
  }

  clear(queue) {
    this.byQueue.delete(queue);
  }
}
