// The settings of a queue, each declared once: its name in the API, its label, its hint, how a form reads and fills it,
// and how it is shown. A setting without `input` cannot be changed here; one without `show` has no line of its own.

import { h } from "../dom.js";
import { duration, number } from "../time.js";

const words = (text) =>
  text
    .split(",")
    .map((word) => word.trim())
    .filter(Boolean);
const isEmpty = (object) => !Object.keys(object ?? {}).length;

const whole = {
  read: (text) => (String(text).trim() === "" ? null : Number(text)),
  fill: (value) => value ?? "",
  props: { type: "number", min: 0, step: 1, inputmode: "numeric" },
};
const decimal = { ...whole, props: { ...whole.props, step: "any" } };
const list = {
  read: (text) => (words(text).length ? words(text) : null),
  fill: (value) => (value ?? []).join(", "),
  props: { type: "text" },
};
const json = {
  read: (text) => (text.trim() === "" ? null : JSON.parse(text)),
  fill: (value) => (isEmpty(value) ? "" : JSON.stringify(value)),
  props: { type: "text" },
};
const checkbox = { read: Boolean, fill: Boolean, props: { type: "checkbox" } };
const oldest = {
  ...checkbox,
  read: (checked) => (checked ? "oldest" : "fair"),
  fill: (value) => value === "oldest",
};

const code = (value, otherwise) => (isEmpty(value) ? otherwise : h("code", {}, JSON.stringify(value)));

const SETTINGS = [
  {
    name: "types",
    label: "Types",
    hint: "Separated by commas; asterisks are wildcards. Empty: all types.",
    input: list,
  },
  { name: "tags", label: "Tags", hint: "Separated by commas. Empty: any tags.", input: list },
  { name: "all_tags", label: "Require all tags", input: checkbox },
  { name: "takes", label: "Accept new events", input: checkbox },
  {
    name: "max_retries",
    label: "Max attempts",
    hint: "An event becomes a dead letter when the last attempt fails. Empty: 3.",
    input: whole,
    show: (value) => `${number(Math.max(1, value))}, then a dead letter`,
  },
  {
    name: "backoff",
    label: "Backoff",
    hint: "JSON. Empty: 5 minutes after every failure.",
    input: json,
    show: (value) => code(value, "default"),
  },
  {
    name: "max_queue_depth",
    label: "Max queue depth",
    hint: "Publishing is refused above it. Empty: no limit.",
    input: whole,
    show: (value) => (value ? number(value) : "no limit"),
  },
  {
    name: "high_watermark",
    label: "High watermark",
    hint: "Publishers are warned above this queue depth.",
    input: whole,
    show: (value) => (value ? number(value) : "none"),
  },
  {
    name: "batch_size",
    label: "Batch size",
    hint: "Events that a node claims at once. Empty: set by the node.",
    input: whole,
    show: (value) => value ?? "set by the node",
  },
  { name: "processing_interval", label: "Poll interval", show: duration },
  {
    name: "lease",
    label: "Lease (seconds)",
    hint: "For claims that set none. Empty: 60, or the default of the server.",
    input: decimal,
    show: (value) => (value ? number(value) : null),
  },
  {
    name: "max_snoozes",
    label: "Max snoozes",
    hint: "A further snooze of a delivery counts as a failure. Empty: no limit.",
    input: whole,
    show: (value) => value !== null && number(value),
  },
  {
    name: "persistence_threshold",
    label: "Save state at depth",
    hint: "Save the state as soon as this many deliveries wait. Empty: only by time.",
    input: whole,
    show: (value) => value && number(value),
  },
  {
    name: "require_lease_token",
    label: "Require lease tokens",
    input: checkbox,
    show: (value) => (value ? "yes" : null),
  },
  {
    name: "order",
    label: "Strict order: the oldest event first, one claim at a time",
    input: oldest,
    title: "Order",
    show: (value) => (value === "oldest" ? "strict: the oldest event first" : "fair: types and tags take turns"),
  },
  {
    name: "limits",
    label: "Limits",
    hint: 'JSON: [{"scope": "tag", "prefix": "tenant:", "at_once": 5}]. Empty: none.',
    input: json,
    show: (value) => code(value, null),
  },
  {
    name: "fair_by",
    label: "Fair by",
    hint: 'Prefix of the tags that take turns, as JSON: {"tag": "tenant:"}. Empty: types and tags take turns.',
    input: json,
    show: (value) => code(value, null),
  },
  {
    name: "aging",
    label: "Aging (seconds)",
    hint: "Raises the priority of a waiting event by one each time this has passed. Empty: never.",
    input: decimal,
    show: (value) => (value ? duration(value) : null),
  },
  { name: "metadata", label: "Metadata", show: (value) => code(value, null) },
];
const CHANGEABLE = SETTINGS.filter((one) => one.input);

/** The settings of a queue that have a line of their own: [label, text]. */
export const shown = (queue) =>
  SETTINGS.filter((one) => one.show).map(({ name, label, title = label, show }) => [title, show(queue[name])]);

/** The fields of a form that changes them. */
export const fields = (queue) =>
  CHANGEABLE.map(({ name, label, hint, input }) => ({
    name,
    label,
    hint,
    value: input.fill(queue[name]),
    ...input.props,
  }));

/** A sentence that says which value of a form is wrong, or null. */
export function problem(values) {
  for (const { name, label, input } of CHANGEABLE) {
    try {
      input.read(values[name]);
    } catch {
      return `${label} is not valid JSON.`;
    }
  }
  return null;
}

/** The settings that a form has changed. */
export function changes(queue, values) {
  const read = CHANGEABLE.map(({ name, input }) => [name, input.read(values[name])]);
  return Object.fromEntries(
    read.filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(queue[name] ?? null)),
  );
}
