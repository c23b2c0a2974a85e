// Dialogs: confirmations, forms, and texts to read.

import { h, render } from "./dom.js";

const dialog = () => document.getElementById("dialog");

/**
 * Ask for confirmation. `fields` are inputs: {name, label, hint, type, value, …}. Returns the values by name, or null when
 * the dialog is dismissed. `check(values)` may return a sentence that says what is wrong with them.
 */
export function ask({ title, text, action, dismiss = "Cancel", danger = false, fields = [], check = () => null }) {
  return new Promise((resolve) => {
    const element = dialog();
    const values = Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""]));
    let wrong = null;
    const draw = () => render(element, form());
    const end = (answer) => {
      element.onclose = null;
      element.close();
      render(element);
      resolve(answer);
    };
    const submit = (event) => {
      event.preventDefault();
      wrong = check(values);
      if (wrong) draw();
      else end(values);
    };
    const form = () =>
      h(
        "form",
        { method: "dialog", onsubmit: submit, novalidate: true },
        h("h2", { id: "dialog-title" }, title),
        [text]
          .flat()
          .filter(Boolean)
          .map((paragraph) => h("p", {}, paragraph)),
        fields.map((field) => entry(field, values)),
        wrong && h("p", { class: "wrong", role: "alert" }, wrong),
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", class: "plain", onclick: () => end(null) }, dismiss),
          h("button", { type: "submit", class: danger ? "danger" : "primary", autofocus: fields.length === 0 }, action),
        ),
      );
    element.onclose = () => {
      render(element);
      resolve(null);
    };
    element.onclick = (event) => {
      if (event.target === element) end(null);
    };
    draw();
    element.showModal();
    element.querySelector(fields.length ? "input, select, textarea" : "button[type=submit]")?.focus();
  });
}

function entry(field, values) {
  const { name, label, hint, options, value, ...props } = field;
  const id = `field-${name}`;
  const shared = {
    id,
    name,
    "aria-describedby": hint ? `${id}-hint` : null,
    oninput: (event) => {
      values[name] = event.target.type === "checkbox" ? event.target.checked : event.target.value;
    },
  };
  const input = options
    ? h(
        "select",
        { ...shared, value },
        options.map(([its, said]) => h("option", { value: its }, said)),
      )
    : props.type === "checkbox"
      ? h("input", { ...shared, ...props, checked: value })
      : h("input", { autocomplete: "off", spellcheck: "false", ...shared, ...props, value });
  return h(
    "div",
    { class: props.type === "checkbox" ? "field check" : "field", key: name },
    h("label", { for: id }, label),
    input,
    hint && h("small", { id: `${id}-hint` }, hint),
  );
}

/** A text to read, with a button to close it. */
export function show(title, ...content) {
  const element = dialog();
  const close = () => element.close();
  element.onclose = () => render(element);
  element.onclick = (event) => {
    if (event.target === element) close();
  };
  render(
    element,
    h(
      "div",
      {},
      h("h2", { id: "dialog-title" }, title),
      content,
      h("div", { class: "buttons" }, h("button", { class: "primary", onclick: close }, "Close")),
    ),
  );
  element.showModal();
}
