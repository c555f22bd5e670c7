// Runs before the first paint: the chosen theme, else the system's.
(() => {
  const root = document.documentElement;
  const next = { "": "dark", dark: "light", light: "" };
  let chosen = "";
  try { chosen = localStorage.getItem("theme") || ""; } catch { /* storage is forbidden */ }
  const show = () => {
    if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme;
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.querySelector("[data-theme-name]").textContent = chosen || "system";
    }
  };
  show();
  document.addEventListener("DOMContentLoaded", () => {
    show();
    for (const button of document.querySelectorAll("[data-theme-switch]")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        chosen = next[chosen] ?? "";
        try { localStorage.setItem("theme", chosen); } catch { /* only this page, then */ }
        show();
        document.dispatchEvent(new Event("themechange"));
      });
    }
  });
})();
