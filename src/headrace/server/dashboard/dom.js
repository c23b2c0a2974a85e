// Renders a description of the page. Text becomes text nodes: nothing can be injected as markup.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "indeterminate", "open"]);

/** A description of an element. Children may be nested lists; null, undefined and false are nothing. */
export function h(name, props, ...children) {
  return { name, props: props ?? {}, children: described(children) };
}

function described(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (typeof child === "object" ? child : { text: String(child), props: {} }));
}

/** Make the children of an element match a description, with few changes: focus and scrolling stay. */
export function render(parent, ...children) {
  const after = described(children);
  const mounted = [];
  patchChildren(parent, parent.drawn ?? [], after, parent.namespaceURI === SVG, mounted);
  parent.drawn = after;
  for (const [element, tell] of mounted) tell(element);
}

function patchChildren(parent, before, after, inSvg, mounted) {
  const keyed = new Map();
  const loose = [];
  for (const node of before) node.props.key === undefined ? loose.push(node) : keyed.set(node.props.key, node);
  const leaving = new Set(before);
  const matches = after.map((node) => {
    const old = node.props.key === undefined ? loose.shift() : keyed.get(node.props.key);
    if (!old || old.name !== node.name || !leaving.has(old)) return null;
    leaving.delete(old);
    return old;
  });
  for (const node of leaving) node.element.remove();
  let place = parent.firstChild;
  after.forEach((node, index) => {
    if (matches[index]) patch(matches[index], node, inSvg, mounted);
    else create(node, inSvg, mounted);
    if (node.element === place) place = place.nextSibling;
    else parent.insertBefore(node.element, place);
  });
}

function create(node, inSvg, mounted) {
  if (node.text !== undefined) {
    node.element = document.createTextNode(node.text);
    return;
  }
  const isSvg = inSvg || node.name === "svg";
  node.element = isSvg ? document.createElementNS(SVG, node.name) : document.createElement(node.name);
  patchChildren(node.element, [], node.children, isSvg, mounted);
  setAll(node.element, {}, node.props);
  if (node.props.mounted) mounted.push([node.element, node.props.mounted]);
}

function patch(old, node, inSvg, mounted) {
  if (node === old) return;
  const element = (node.element = old.element);
  if (node.text !== undefined) {
    if (node.text !== old.text) element.data = node.text;
    return;
  }
  patchChildren(element, old.children, node.children, inSvg || node.name === "svg", mounted);
  setAll(element, old.props, node.props);
}

function setAll(element, before, after) {
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (before[name] !== after[name] || name === "style") set(element, name, after[name], before[name]);
  }
}

function set(element, name, value, before) {
  if (name === "key" || name === "mounted") return;
  if (name.startsWith("on")) hear(element, name.slice(2), value);
  else if (name === "style") setStyle(element, before ?? {}, value ?? {});
  else if (PROPERTIES.has(name)) setProperty(element, name, value);
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (name === "href" && !/^[#/]/.test(value)) throw new Error("a link must lead to an address of this server");
  else element.setAttribute(name, value === true ? "" : value);
}

/** By listeners, not by properties: focusin has none. */
function hear(element, type, listener) {
  element.heard ??= {};
  if (!(type in element.heard)) element.addEventListener(type, (event) => element.heard[type]?.(event));
  element.heard[type] = listener;
}

function setStyle(element, before, after) {
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (before[name] !== after[name]) element.style.setProperty(name, after[name] ?? null);
  }
}

function setProperty(element, name, value) {
  const wanted = value ?? (typeof element[name] === "boolean" ? false : "");
  const isTyping = name === "value" && element.localName === "input" && element === document.activeElement;
  if (!isTyping && element[name] !== wanted) element[name] = wanted;
}
