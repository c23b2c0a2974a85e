// Times and durations as text, by the clock of the server.

let skew = 0;

/** Measure the skew of the local clock, to the second, from the date of an answer. */
export function tellTime(date) {
  const theirs = Date.parse(date ?? "");
  if (Number.isNaN(theirs)) return;
  const off = theirs + 500 - Date.now();
  skew = Math.abs(off) > 2000 ? off : 0;
}

export const now = () => Date.now() + skew;

const format = (options) => new Intl.DateTimeFormat("en-GB", options);
const FULL = format({ dateStyle: "medium", timeStyle: "long" });
const TIME = format({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const MINUTE = format({ hour: "2-digit", minute: "2-digit" });
const DAY = format({ weekday: "short", day: "numeric" });
const DATE = format({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export const fully = (at) => FULL.format(new Date(at));
export const clock = (at) => TIME.format(new Date(at));
export const minute = (at) => MINUTE.format(new Date(at));
export const day = (at) => DAY.format(new Date(at));
export const dated = (at) => DATE.format(new Date(at));

/** Moments in short: a date only if it is not today, seconds only if one of them has some. */
export function shortly(moments) {
  const say = moments.some((at) => new Date(at).getSeconds()) ? clock : minute;
  const today = new Date(now()).toDateString();
  return moments.map((at) => (new Date(at).toDateString() === today ? say(at) : dated(at))).join(", ");
}

const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** Seconds as a duration: 850 µs, 12 ms, 3.4 s, 5 min, 2 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${trimmed(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${trimmed(seconds)} s`;
  return roughly(seconds);
}

/** Seconds in their largest unit, for the axis of a chart: 10 s, 1.7 min, 2.8 h. */
export function compact(seconds) {
  const [unit, size] = UNITS.find(([, its]) => seconds >= its) ?? [];
  return unit && size > 1 ? `${trimmed(seconds / size)} ${unit}` : duration(seconds);
}

function trimmed(number) {
  return number >= 9.95 ? String(Math.round(number)) : String(Math.round(number * 10) / 10);
}

/** A duration in its largest unit, and a second one where the first is small. */
export function roughly(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const place = UNITS.findIndex(([, size]) => whole >= size);
  if (place < 0) return "0 s";
  const [unit, size] = UNITS[place];
  const many = Math.floor(whole / size);
  const [smaller, its] = UNITS[place + 1] ?? [];
  const rest = its ? Math.floor((whole % size) / its) : 0;
  return many < 10 && rest ? `${many} ${unit} ${rest} ${smaller}` : `${many} ${unit}`;
}

/** How long ago a moment was, or how far ahead it is. */
export function ago(at) {
  const seconds = (now() - Date.parse(at)) / 1000;
  if (Math.abs(seconds) < 1.5) return "now";
  return seconds > 0 ? `${coarse(seconds)} ago` : `in ${coarse(-seconds)}`;
}

function coarse(seconds) {
  const [unit, size] = UNITS.find(([, its]) => seconds >= its) ?? UNITS.at(-1);
  return `${Math.floor(seconds / size)} ${unit}`;
}

const NUMBER = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value) => NUMBER.format(value);
export const short = (value) => (Math.abs(value) < 10000 ? NUMBER.format(Math.round(value)) : SHORT.format(value));
export const rate = (value) => (value < 9.95 ? String(Math.round(value * 10) / 10) : short(value));
export const percent = (part) =>
  `${part > 0 && part < 0.0995 ? Math.round(part * 1000) / 10 : Math.round(part * 100)}%`;
export const plural = (many, one, more = `${one}s`) => `${number(many)} ${many === 1 ? one : more}`;
