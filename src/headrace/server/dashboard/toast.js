// A message about an action, shown for a moment at the edge of the page.

const LAST = 5000; // milliseconds
const LAST_BAD = 10_000;

export function toast(text, { bad = false } = {}) {
  const element = document.createElement("div");
  element.className = bad ? "toast bad" : "toast";
  element.textContent = text;
  const close = document.createElement("button");
  close.className = "quiet";
  close.ariaLabel = "Close";
  close.textContent = "×";
  close.onclick = () => element.remove();
  element.append(close);
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), bad ? LAST_BAD : LAST);
}
