// Chooses light or dark before anything is painted; therefore it is a classic script.
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
      /* without storage, the choice lasts as long as the page */
    }
    document.documentElement.dataset.theme = name;
  },
};
document.documentElement.dataset.theme = theme.chosen;
window.theme = theme;
