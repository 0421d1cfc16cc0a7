// One place, one head and one query are chosen; links, weights and a sentence show what it sees.
const places = JSON.parse(document.getElementById("places").textContent);
const [place, head, rows, columns, lines, table, said] = [
  "place", "head", "rows", "columns", "lines", "weights", "said",
].map((id) => document.getElementById(id));
let query = 0;

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function token(text, attributes) {
  const item = document.createElement("li");
  item.append(element("button", text, { type: "button", ...attributes }));
  return item;
}

function changePlace() {
  const chosen = places[place.value];
  const before = Number(head.value) || 0;
  head.replaceChildren(...chosen.weights.map((_, i) => element("option", i, { value: i })));
  head.value = Math.min(before, chosen.weights.length - 1);
  rows.replaceChildren(...chosen.rows.map((text) => token(text, {})));
  columns.replaceChildren(...chosen.columns.map((text) => token(text, { tabindex: -1 })));
  rows.querySelectorAll("button").forEach((button, i) => {
    button.addEventListener("click", () => changeQuery(i));
    button.addEventListener("focus", () => changeQuery(i));
  });
  changeHead();
}

function changeHead() {
  const chosen = places[place.value];
  const weights = chosen.weights[head.value];
  const top = document.createElement("tr");
  top.append(element("td", ""), ...chosen.columns.map((text) => element("th", text, { scope: "col" })));
  table.replaceChildren(top, ...weights.map((row, i) => {
    const line = document.createElement("tr");
    line.append(element("th", chosen.rows[i], { scope: "row" }));
    line.append(...row.map((w) => element("td", w < 0.005 ? "" : w.toFixed(2), { style: `--w: ${w}` })));
    return line;
  }));
  changeQuery(Math.min(query, chosen.rows.length - 1));
}

function changeQuery(i) {
  query = i;
  const chosen = places[place.value];
  const weights = chosen.weights[head.value][i];
  rows.querySelectorAll("button").forEach((b, j) => b.setAttribute("aria-pressed", i === j));
  table.querySelectorAll("tr").forEach((tr, j) => tr.classList.toggle("chosen", j === i + 1));
  draw(weights);
  const most = weights.map((w, j) => [w, chosen.columns[j]]).sort((a, b) => b[0] - a[0]).slice(0, 4);
  const seen = most.filter(([w]) => w >= 0.005).map(([w, text]) => `${text} ${(100 * w).toFixed(0)}%`);
  said.textContent = `${chosen.rows[i]}: ${seen.join(", ") || "nothing"}`;
}

function draw(weights) {
  const box = lines.getBoundingClientRect();
  const from = rows.querySelectorAll("button")[query].getBoundingClientRect();
  lines.replaceChildren(...[...columns.querySelectorAll("button")].flatMap((button, j) => {
    if (weights[j] < 0.005) return [];
    const to = button.getBoundingClientRect();
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    const points = {
      x1: from.right - box.left, y1: (from.top + from.bottom) / 2 - box.top,
      x2: to.left - box.left, y2: (to.top + to.bottom) / 2 - box.top,
      "stroke-width": Math.max(0.5, 9 * weights[j]), "stroke-opacity": Math.max(0.15, weights[j]),
    };
    for (const [key, value] of Object.entries(points)) line.setAttribute(key, value);
    return [line];
  }));
}

rows.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const next = step && rows.querySelectorAll("button")[query + step];
  if (next) { event.preventDefault(); next.focus(); }
});
place.addEventListener("change", changePlace);
head.addEventListener("change", changeHead);
window.addEventListener("resize", () => changeQuery(query));
changePlace();
