// Sorts tables, and lets a reader choose rows, which the whole page then shows. Without scripts the
// page shows pictures of the charts, and every row, run and sentence.
const data = JSON.parse(document.getElementById("data").textContent);
const every = (selector, root = document) => [...root.querySelectorAll(selector)];
const [filter, reset, chosen, sentence, seeds] = [
  "filter", "all", "chosen", "sentence", "seeds",
].map((id) => document.getElementById(id));
const lines = every("#result tr[data-index]");
const ticks = lines.map((line) => line.querySelector("input"));
const views = []; // of the charts, with their figures

// The rows that match every word of the filter; if any row is ticked, only those that are ticked.
function update() {
  const words = filter.value.toLowerCase().split(/\s+/);
  lines.forEach((line) => { line.hidden = !words.every((w) => line.title.toLowerCase().includes(w)); });
  const ticked = ticks.some((tick) => tick.checked);
  const rows = lines.map((_, i) => i).filter((i) => !lines[i].hidden && (!ticked || ticks[i].checked));
  for (const node of every("[data-row]")) {
    const { row, other = row } = node.dataset;
    const unseen = "seed" in node.dataset && seeds && !seeds.checked;
    node.hidden = unseen || !rows.includes(Number(row)) || !rows.includes(Number(other));
  }
  for (const node of every("[data-rows]")) {
    node.hidden = !node.dataset.rows.trim().split(" ").some((row) => rows.includes(Number(row)));
  }
  for (const node of every("[data-sentence]")) node.hidden = node.dataset.sentence !== sentence.value;
  const count = rows.length === lines.length ? "All" : `${rows.length} of`;
  chosen.textContent = `${count} ${lines.length} rows are shown.`;
  reset.disabled = rows.length === lines.length && !ticked;
  for (const drawn of views) show(drawn, rows);
  const state = { filter: filter.value, ticked: ticks.map((tick) => tick.checked) };
  history.replaceState(state, ""); // so that the choice survives a reload
}

function show({ view, figure }, rows) {
  figure.hidden = !rows.length;
  view.signal("chosen", rows.map((i) => data.rows[i].name)).runAsync();
}

async function draw(figure) {
  const { view } = await window.vegaEmbed(figure.querySelector(".chart"), data.specs[figure.id], {
    renderer: "svg",
    actions: { export: true, source: false, compiled: false, editor: false },
    downloadFileName: `${document.title.split(": ").at(-1)}-${figure.id}`,
    scaleFactor: { png: 3 },
  });
  view.addEventListener("click", (_, mark) => {
    const row = data.rows.findIndex(({ name }) => name === mark?.datum?.row);
    if (row >= 0) { ticks[row].checked = !ticks[row].checked; update(); }
  });
  views.push({ view, figure });
  figure.classList.add("drawn");
  update();
}

// Sorts the rows of a table by the column of a clicked heading: up, down, then in the original order.
function sortable(table) {
  const original = [...table.tBodies].map((body) => [body, [...body.rows]]);
  const heading = table.querySelector("tr.sorting");
  [...heading.cells].forEach((cell, column) => {
    if (!cell.textContent) return;
    const button = document.createElement("button");
    cell.replaceChildren(Object.assign(button, { type: "button", textContent: cell.textContent }));
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: "" }[cell.getAttribute("aria-sort")] ?? "ascending";
      for (const other of heading.cells) other.removeAttribute("aria-sort");
      for (const [body, rows] of original) body.append(...rows);
      if (!next) return;
      cell.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const rows = original.flatMap(([, rows]) => rows).map((row) => [value(cell, row, column), row]);
      rows.sort(([a], [b]) => ((a === "") - (b === "")) || sign * (a - b || String(a).localeCompare(b)));
      original[0][0].append(...rows.map(([, row]) => row));
    });
  });
}

// The value of a row in a column; a config field that is blank in the table has the row's own value.
function value(heading, row, column) {
  const config = data.rows[row.dataset.index]?.config ?? {};
  const shown = config[heading.dataset.field] ?? row.cells[column].textContent.trim();
  return shown === "" || Number.isNaN(parseFloat(shown)) ? shown : parseFloat(shown);
}

for (const node of every(".scripted")) node.hidden = false;
if (history.state) {
  filter.value = history.state.filter;
  history.state.ticked.forEach((checked, i) => { if (ticks[i]) ticks[i].checked = checked; });
}
for (const node of [...ticks, sentence, seeds]) node?.addEventListener("change", update);
filter.addEventListener("input", update);
reset.addEventListener("click", () => {
  filter.value = "";
  for (const tick of ticks) tick.checked = false;
  update();
});
document.getElementById("choice").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", update);
every("table:has(tr.sorting)").forEach(sortable);
update();
if (window.vegaEmbed) every("figure").forEach(draw);
