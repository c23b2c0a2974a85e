// The choice of light or dark, made before anything is painted. It is a classic script for that reason.
"use strict";
const theme = {
  get chosen() {
    try {
      return localStorage.getItem("headrace.theme") ?? "auto";
    } catch {
      return "auto";
    }
  },
  choose(name) {
    try {
      localStorage.setItem("headrace.theme", name);
    } catch {
      /* then it lasts as long as the page */
    }
    document.documentElement.dataset.theme = name;
  },
};
document.documentElement.dataset.theme = theme.chosen;
window.theme = theme;
