"use strict";
const numberOf = (cell) => (cell.dataset.value === undefined ? NaN : Number(cell.dataset.value));

function compare(one, other, direction) {
  const a = numberOf(one), b = numberOf(other);
  if (isNaN(a) && isNaN(b)) return direction * one.textContent.localeCompare(other.textContent, "en", { numeric: true });
  if (isNaN(a) || isNaN(b)) return isNaN(a) ? 1 : -1; // what has no number stays at the end
  return direction * (a - b);
}

function sortBy(header) {
  const ascending = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentElement.children) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = header.closest("table").tBodies[0];
  const place = header.cellIndex;
  const rows = [...body.rows].sort((a, b) => compare(a.cells[place], b.cells[place], ascending ? 1 : -1));
  body.append(...rows);
}

function filter(section, form) {
  const wanted = form.elements.module.value.trim().toLowerCase();
  const { family, status } = form.elements;
  const chosen = [...form.querySelectorAll("select[data-place]")].filter((select) => select.value);
  let shown = 0;
  for (const row of section.querySelector("table").tBodies[0].rows) {
    const fits = row.dataset.module.toLowerCase().includes(wanted) &&
      (!family.value || row.dataset.family === family.value) &&
      (!status || !status.value || row.dataset.status === status.value) &&
      chosen.every((select) => row.cells[select.dataset.place].textContent.trim() === select.value);
    row.hidden = !fits;
    shown += fits;
  }
  form.querySelector("output").textContent = shown + (shown === 1 ? " row" : " rows");
}

// The columns that a reader has to ask for are hidden; headings span those that are shown.
function columns(section, form) {
  const all = form.elements.all && form.elements.all.checked;
  const table = section.querySelector("table");
  table.classList.toggle("few", !all);
  for (const heading of table.querySelectorAll("[data-few]")) {
    const count = Number(all ? heading.dataset.all : heading.dataset.few);
    heading.hidden = count === 0;
    if (count) heading.colSpan = count;
  }
}

// From a row's name, the arrow keys lead to its cells that have more to say.
function step(event) {
  const cell = event.target.closest("tbody th, tbody td");
  if (!cell || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const cells = [...cell.parentElement.cells].filter((each) => each.tabIndex >= -1 && each.hasAttribute("tabindex") && each.offsetParent);
  const next = cells[cells.indexOf(cell) + (event.key === "ArrowRight" ? 1 : -1)];
  if (next) next.focus();
  event.preventDefault();
}

const tooltip = document.getElementById("tooltip");

function show(target) {
  tooltip.textContent = target.dataset.detail;
  tooltip.hidden = false;
  target.setAttribute("aria-describedby", "tooltip");
  const box = target.getBoundingClientRect(), own = tooltip.getBoundingClientRect();
  const below = box.bottom + own.height + 8 < innerHeight;
  tooltip.style.top = (below ? box.bottom + 4 : Math.max(4, box.top - own.height - 4)) + "px";
  tooltip.style.left = Math.max(4, Math.min(box.left, innerWidth - own.width - 8)) + "px";
}

function hide() {
  tooltip.hidden = true;
  for (const target of document.querySelectorAll("[aria-describedby=tooltip]")) target.removeAttribute("aria-describedby");
}

for (const section of document.querySelectorAll("section[data-table]")) {
  for (const form of section.querySelectorAll("form")) {
    const apply = () => { filter(section, form); columns(section, form); };
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    columns(section, form);
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  for (const button of section.querySelectorAll("button.sort")) {
    button.addEventListener("click", () => sortBy(button.closest("th")));
  }
}
for (const [begin, end] of [["mouseover", "mouseout"], ["focusin", "focusout"]]) {
  document.addEventListener(begin, (event) => {
    const target = event.target.closest("[data-detail]");
    if (target) show(target);
  });
  document.addEventListener(end, hide);
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
  else step(event);
});
