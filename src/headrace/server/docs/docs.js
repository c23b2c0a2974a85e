"use strict";
// All content is added as text, never as markup.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") element.addEventListener("click", value);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

let api;

function resolved(described) {
  if (!described?.$ref) return described || {};
  const [, , kind, name] = described.$ref.split("/");
  return api.components[kind][name];
}

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.type === "array") return `list of ${kind(schema.items) || "anything"}`;
  const bounds = [["minimum", "≥"], ["maximum", "≤"], ["exclusiveMinimum", ">"], ["maxLength", "length ≤"]]
    .filter(([name]) => name in schema).map(([name, sign]) => `${sign} ${schema[name]}`);
  return [schema.format || schema.type || "anything", ...bounds].join(", ");
}

function example(schema, depth = 0) {
  schema = resolved(schema);
  if ("default" in schema) return schema.default;
  if (schema.anyOf) return example(schema.anyOf.find((one) => one.type !== "null"), depth);
  if (schema.enum) return schema.enum[0];
  if (schema.type === "array") return depth > 3 ? [] : [example(schema.items, depth + 1)];
  if (schema.type === "object") {
    const needed = schema.required || [];
    return Object.fromEntries(needed.map((name) => [name, example(schema.properties[name], depth + 1)]));
  }
  return { string: "", integer: 1, number: 1, boolean: false }[schema.type] ?? {};
}

function fields(schema) {
  const known = resolved(schema);
  if (!known.properties) return make("p", { class: "kind" }, kind(schema));
  const rows = Object.entries(known.properties).map(([name, its]) => make("tr", {},
    make("td", {}, make("code", {}, name), (known.required || []).includes(name) ? make("span", { class: "needed" }, " *") : null),
    make("td", { class: "kind" }, kind(its)),
    make("td", {}, its.description || "")));
  return make("table", {}, ...rows);
}

function parameters(operation) {
  const inputs = new Map();
  const rows = operation.parameters.map((parameter) => {
    const input = make("input", { "aria-label": parameter.name });
    if (parameter.schema.default !== undefined) input.placeholder = String(parameter.schema.default);
    inputs.set(parameter, input);
    return make("tr", {},
      make("td", {}, make("code", {}, parameter.name), parameter.required ? make("span", { class: "needed" }, " *") : null),
      make("td", { class: "kind" }, `${parameter.in}, ${kind(parameter.schema)}`),
      make("td", {}, parameter.description || ""),
      make("td", {}, input));
  });
  return [rows.length ? make("table", {}, ...rows) : null, inputs];
}

async function ask(method, path, inputs, body) {
  const headers = {};
  const query = new URLSearchParams();
  for (const [parameter, input] of inputs) {
    let value = input.value;
    if (!value && parameter.name === "namespace") value = document.getElementById("namespace").value;
    if (!value) continue;
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(value));
    else if (parameter.in === "query") query.set(parameter.name, value);
    else headers[parameter.name] = value;
  }
  const token = document.getElementById("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const address = query.size ? `${path}?${query}` : path;
  const response = await fetch(address, { method, headers, body });
  const text = await response.text();
  let shown = text;
  try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* it is not JSON */ }
  return `${method} ${address}\n${response.status} ${response.statusText}\n\n${shown}`;
}

function trial(method, path, operation, inputs) {
  const said = make("pre", { hidden: "" });
  const content = operation.requestBody?.content["application/json"];
  const body = content ? make("textarea", { "aria-label": "body", spellcheck: "false" }) : null;
  if (body) body.value = JSON.stringify(example(content.schema), null, 2);
  const send = make("button", {
    onclick: async () => {
      said.hidden = false;
      said.textContent = "…";
      try { said.textContent = await ask(method, path, inputs, body ? body.value : undefined); }
      catch (error) { said.textContent = String(error); }
    },
  }, "Send");
  const endless = Object.values(operation.responses).some((one) => one.content && "text/event-stream" in one.content);
  return make("div", {}, body, endless ? make("p", { class: "kind" }, "A stream: read it with EventSource or curl -N.") : send, said);
}

function described(method, path, operation) {
  const [table, inputs] = parameters(operation);
  const content = operation.requestBody?.content["application/json"];
  const answers = Object.entries(operation.responses).map(([status, its]) => {
    const answer = resolved(its);
    const [media] = Object.entries(answer.content || {});
    const isError = media && media[1].schema.$ref?.endsWith("/Error");
    return make("details", {}, make("summary", {}, make("code", {}, status), make("span", { class: "said" }, answer.description)),
      make("div", { class: "inside" }, media && !isError ? fields(media[1].schema) : make("p", {}, isError ? "error, code" : "no body")));
  });
  return make("details", { id: operation.operationId },
    make("summary", {},
      make("span", { class: `method ${method}` }, method), make("span", { class: "path" }, path),
      make("span", { class: "said" }, operation.summary), make("span", { class: "scope" }, operation["x-scope"] || "open")),
    make("div", { class: "inside" },
      make("p", {}, operation.description), table,
      content ? make("h3", {}, "Body") : null, content ? fields(content.schema) : null,
      make("h3", {}, "Try it"), trial(method, path, operation, inputs),
      make("h3", {}, "Responses"), ...answers));
}

async function show() {
  const main = document.getElementById("main");
  try {
    const response = await fetch("/openapi.json");
    api = await response.json();
  } catch (error) {
    main.replaceChildren(make("p", {}, `Cannot load the API description: ${error}`));
    return;
  }
  document.getElementById("version").textContent = api.info.version;
  const sections = api.tags.map((tag) => {
    const operations = Object.entries(api.paths).flatMap(([path, methods]) => Object.entries(methods)
      .filter(([, operation]) => operation.tags[0] === tag.name)
      .map(([method, operation]) => described(method.toUpperCase(), path, operation)));
    return operations.length ? make("section", {}, make("h2", {}, tag.name), make("p", {}, tag.description), ...operations) : null;
  });
  main.replaceChildren(...api.info.description.split("\n\n").map((text) => make("p", {}, text)), ...sections.filter(Boolean));
  document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
}

show();
