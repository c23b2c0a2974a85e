// Requests to the server. An error is a Refused; no answer, or one that says "later", is an Away.

import { tellTime } from "./time.js";

const PATIENCE = 20_000; // milliseconds

/** The server answered with an error. */
export class Refused extends Error {
  constructor(status, body) {
    super(body.error ?? `The server answered with status ${status}.`);
    this.status = status;
    this.code = body.code ?? "unknown";
  }
}

/** The server or its database cannot be reached: try again later. */
export class Away extends Error {
  constructor(message, after = null) {
    super(message);
    this.after = after;
  }
}

export const token = {
  get value() {
    try {
      return sessionStorage.getItem("headrace.token");
    } catch {
      return this.here ?? null;
    }
  },
  set value(text) {
    this.here = text;
    try {
      text ? sessionStorage.setItem("headrace.token", text) : sessionStorage.removeItem("headrace.token");
    } catch {
      /* without storage, the token lasts as long as the page */
    }
  },
};

/** Called with the outcome of every request: `away(error)`, `answered()`, `locked(error)`. */
export const listener = { away() {}, answered() {}, locked() {} };

export function headers(more = {}) {
  return token.value ? { ...more, Authorization: `Bearer ${token.value}` } : more;
}

/** `path` with parameters; one that is null, undefined or empty is not sent. */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, value);
  }
  return query.size ? `${path}?${query}` : path;
}

/** A path whose parts may have any characters. */
export const path = (strings, ...parts) =>
  strings.reduce((whole, text, n) => whole + encodeURIComponent(parts[n - 1]) + text);

async function ask(method, where, { params, body, signal, read = JSON.parse } = {}) {
  const late = AbortSignal.timeout(PATIENCE);
  const [response, text] = await reach(
    address(where, params),
    {
      method,
      headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ? AbortSignal.any([signal, late]) : late,
      cache: "no-store",
    },
    signal,
  );
  tellTime(response.headers.get("date"));
  if (response.ok) {
    listener.answered();
    return text ? read(text) : null;
  }
  throw refusal(response, text);
}

/** JSON whose numbers stay as they were written, even those that JavaScript would round, if the browser can do that. */
function exactly(text) {
  if (!JSON.rawJSON) return JSON.parse(text);
  const isChanged = (value, source) => typeof value === "number" && String(value) !== source;
  return JSON.parse(text, (_, value, { source }) => (isChanged(value, source) ? JSON.rawJSON(source) : value));
}

async function reach(url, options, signal) {
  try {
    const response = await fetch(url, options);
    return [response, await response.text()];
  } catch (error) {
    if (signal?.aborted) throw error;
    const away = new Away("The server does not answer.");
    listener.away(away);
    throw away;
  }
}

/** The error that an answer means; for streams too. */
export function refusal(response, text) {
  const body = said(text);
  if (response.status === 503 || response.status === 502 || response.status === 504) {
    const away = new Away(
      body.error ?? "The server is not ready.",
      Number(response.headers.get("retry-after")) || null,
    );
    listener.away(away);
    return away;
  }
  listener.answered();
  const refused = new Refused(response.status, body);
  if (refused.status === 401) listener.locked(refused);
  return refused;
}

function said(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

export const api = {
  get: (where, params, signal) => ask("GET", where, { params, signal }),
  /** For answers with payloads, whose numbers may be long. */
  getExactly: (where, params, signal) => ask("GET", where, { params, signal, read: exactly }),
  post: (where, body, params) => ask("POST", where, { body, params }),
  patch: (where, body, params) => ask("PATCH", where, { body, params }),
  delete: (where, params) => ask("DELETE", where, { params }),
};
