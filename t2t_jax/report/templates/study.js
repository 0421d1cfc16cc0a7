// Lets a reader choose rows, and updates the whole page to show them. Without scripts the page shows
// pictures of the charts, and every row, run and sentence.
const data = JSON.parse(document.getElementById("data").textContent);
const each = (selector, action) => document.querySelectorAll(selector).forEach(action);
const [filter, all, chosen, menu, everySeed] = [
  "filter", "all", "chosen", "sentence", "seeds",
].map((id) => document.getElementById(id));
const lines = [...document.querySelectorAll("#result tr[data-index]")]
  .sort((a, b) => a.dataset.index - b.dataset.index);
const ticks = lines.map((line) => line.querySelector("input"));
const views = [];
const followers = []; // functions of the indices of the chosen rows

// The rows that match every word of the filter; if any row is ticked, only those that are ticked.
function choice() {
  const words = filter.value.toLowerCase().split(/\s+/);
  const matching = lines.map((line) => words.every((word) => line.title.toLowerCase().includes(word)));
  const ticked = ticks.some((tick) => tick.checked);
  lines.forEach((line, i) => { line.hidden = !matching[i]; });
  return lines.map((_, i) => i).filter((i) => matching[i] && (!ticked || ticks[i].checked));
}

function update() {
  const rows = choice();
  each("[data-row]", (node) => {
    const { row, other = row } = node.dataset;
    const unseen = "seed" in node.dataset && everySeed && !everySeed.checked;
    node.hidden = unseen || !rows.includes(Number(row)) || !rows.includes(Number(other));
  });
  each("[data-sentence]", (sample) => { sample.hidden = sample.dataset.sentence !== menu.value; });
  chosen.textContent = rows.length === lines.length ? `All ${rows.length} rows are shown.`
    : `${rows.length} of ${lines.length} rows are shown.`;
  all.disabled = rows.length === lines.length && !ticks.some((tick) => tick.checked);
  for (const drawn of views) show(drawn, rows);
  for (const follow of followers) follow(rows);
  const state = { filter: filter.value, ticked: ticks.map((tick) => tick.checked) };
  history.replaceState(state, ""); // so that the choice survives a reload
}

// Shows the chosen rows in a chart, or hides the chart if it has none of them. The charts of a
// factorial study show all combinations, and have no rows.
function show({ view, figure }, rows) {
  const names = rows.map((i) => data.rows[i].name);
  const { data: { values }, usermeta } = data.specs[figure.id];
  const shown = values.filter(({ row }) => row === undefined || names.includes(row));
  figure.hidden = !shown.length;
  if (figure.hidden) return;
  if (usermeta) view.height(usermeta.step * (shown.length + 1));
  view.signal("chosen", names).resize().runAsync();
}

async function draw(figure) {
  const chart = figure.querySelector(".chart");
  const picture = chart.innerHTML;
  try {
    const { view } = await window.vegaEmbed(chart, data.specs[figure.id], { renderer: "svg", actions: false });
    chart.removeAttribute("role");
    view.addEventListener("click", (_, mark) => {
      const row = data.rows.findIndex(({ name }) => [mark?.datum?.row, mark?.datum?.value].includes(name));
      if (row >= 0) { ticks[row].checked = !ticks[row].checked; update(); }
    });
    for (const button of figure.querySelectorAll("[data-format]")) {
      button.addEventListener("click", () => save(view, figure.id, button.dataset.format));
    }
    views.push({ view, figure });
    show(views.at(-1), choice());
  } catch (error) {
    chart.innerHTML = picture;
    console.error(error);
  }
}

async function save(view, name, format) {
  const link = document.createElement("a");
  view.background("white");
  link.href = await view.toImageURL(format, 3);
  view.background("transparent");
  link.download = `${document.title.split(": ").at(-1)}-${name}.${format}`;
  link.click();
}

each(".scripted", (node) => { node.hidden = false; });
if (history.state) {
  filter.value = history.state.filter;
  history.state.ticked.forEach((checked, i) => { if (ticks[i]) ticks[i].checked = checked; });
}
for (const node of [...ticks, menu, everySeed]) node?.addEventListener("change", update);
filter.addEventListener("input", update);
all.addEventListener("click", () => {
  filter.value = "";
  for (const tick of ticks) tick.checked = false;
  update();
});
document.getElementById("choice").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", update);
const { refresh } = document.body.dataset;
if (refresh) setTimeout(() => location.reload(), 1000 * refresh);
if (window.vegaEmbed) each("figure", draw);
