// Where one is: the part of the address behind the #. The server's own paths are the API's.

/** The place that a hash names: its path in parts, and its parameters. */
export function place(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts, params: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The hash of a place; parameters that are null, undefined or empty are left out. */
export function hash(parts, params = {}) {
  const given = params instanceof URLSearchParams ? Object.fromEntries(params) : params;
  const query = new URLSearchParams(
    Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  return `#/${parts.map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

/** Go there; `replace` leaves no trace in the history. */
export function go(where, { replace = false } = {}) {
  if (where === location.hash) return;
  if (!replace) {
    location.hash = where;
    return;
  }
  history.replaceState(null, "", where);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
