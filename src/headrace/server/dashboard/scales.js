// Scales of charts: `part(value)` is its height from 0 to 1; `ticks` get a line and a label.

/** Even steps from 0 up. `least` is the lowest top. */
export function linear(values, least) {
  const top = nice(Math.max(least, ...values));
  return { part: (value) => value / top, ticks: [top / 2, top] };
}

/** The next of 1, 2, 4, 6, 8, 10 times a power of ten: a half of it is round too. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 4, 6, 8, 10].find((one) => one * power >= value * 0.999) ?? 10) * power;
}

/** Each step is ten times the last, for values from milliseconds to minutes; two steps at least. */
export function logarithmic(values, least) {
  const known = values.filter((value) => value > 0);
  const bottom = Math.floor(Math.log10(Math.min(least, ...known)));
  const top = Math.max(bottom + 2, Math.ceil(Math.log10(Math.max(least, ...known)) - 1e-9));
  const every = Math.ceil((top - bottom) / 4);
  const ticks = [];
  for (let power = top; power > bottom; power -= every) ticks.push(10 ** power);
  return { part: (value) => (value > 0 ? Math.max(0, (Math.log10(value) - bottom) / (top - bottom)) : 0), ticks };
}
