// SPDX-License-Identifier: Apache-2.0 OR MIT
// Conveniences of the report; everything is there without them.
"use strict";
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => {
    theme.textContent = shown() === "dark" ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Switch to ${theme.textContent.toLowerCase()} colours`);
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = shown() === "dark" ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  label();

  document.getElementById("save").addEventListener("click", () => {
    document.querySelectorAll("script[type='application/json']").forEach((run) => {
      const text = JSON.stringify(JSON.parse(run.textContent), null, 2);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text + "\n"], { type: "application/json" }));
      link.download = `${run.id.replace("document", "bench")}.json`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  });

  // On paper nothing can be unfolded. Registers and single instructions stay closed: they would take many sheets.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open], .long)")];
    closed.forEach((element) => { element.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((element) => { element.open = false; }));

  document.querySelector(".tools").hidden = false;
})();
