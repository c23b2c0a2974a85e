// The address of a view is the part of the URL behind the #; the paths of the server belong to the API.

/** The parts and parameters of a hash. */
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

/** The hash of parts and parameters; those that are null, undefined or empty are left out. */
export function hash(parts, params = {}) {
  const given = params instanceof URLSearchParams ? Object.fromEntries(params) : params;
  const query = new URLSearchParams(
    Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  return `#/${parts.map(encodeURIComponent).join("/")}${query.size ? `?${query}` : ""}`;
}

/** Go to an address; `replace` adds no entry to the history. */
export function go(where, { replace = false } = {}) {
  if (where === location.hash) return;
  if (!replace) {
    location.hash = where;
    return;
  }
  history.replaceState(null, "", where);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
