"use strict";
// A click on a part of a flame graph makes it as wide as the page; a click on the widest shows all again.
for (const graph of document.querySelectorAll(".flame")) {
  const root = graph.querySelector(".node");
  const show = (chosen) => {
    for (const node of graph.querySelectorAll(".node")) {
      const around = node.contains(chosen);
      const shown = around || chosen.contains(node);
      node.classList.toggle("hidden", !shown);
      node.style.width = around ? "100%" : node.dataset.width + "%";
    }
    graph.dataset.chosen = chosen === root ? "" : chosen.firstElementChild.textContent;
  };
  graph.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) {
      const node = button.parentElement;
      show(node.style.width === "100%" ? root : node);
    }
  });
}
