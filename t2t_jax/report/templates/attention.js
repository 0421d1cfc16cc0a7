// Shows the weights of one layer, head and query: as links, as a table and as a line of text.
const layers = JSON.parse(document.getElementById("layers").textContent);
const [layer, head, queries, keys, lines, table, summary] = [
  "layer", "head", "queries", "keys", "lines", "weights", "summary",
].map((id) => document.getElementById(id));
let query = 0;

function element(name, text, attributes = {}) {
  const node = document.createElement(name);
  node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

function token(text, attributes) {
  const item = document.createElement("li");
  item.append(element("button", text, { type: "button", ...attributes }));
  return item;
}

function changeLayer() {
  const chosen = layers[layer.value];
  const previous = Number(head.value) || 0;
  head.replaceChildren(...chosen.weights.map((_, i) => element("option", i, { value: i })));
  head.value = Math.min(previous, chosen.weights.length - 1);
  queries.replaceChildren(...chosen.queries.map((text) => token(text, {})));
  keys.replaceChildren(...chosen.keys.map((text) => token(text, { tabindex: -1 })));
  queries.querySelectorAll("button").forEach((button, i) => {
    button.addEventListener("click", () => changeQuery(i));
    button.addEventListener("focus", () => changeQuery(i));
  });
  changeHead();
}

function changeHead() {
  const chosen = layers[layer.value];
  const weights = chosen.weights[head.value];
  const header = document.createElement("tr");
  header.append(element("td", ""), ...chosen.keys.map((text) => element("th", text, { scope: "col" })));
  table.replaceChildren(header, ...weights.map((row, i) => {
    const line = document.createElement("tr");
    line.append(element("th", chosen.queries[i], { scope: "row" }));
    line.append(...row.map((w) => element("td", w < 0.005 ? "" : w.toFixed(2), { style: `--w: ${w}` })));
    return line;
  }));
  changeQuery(Math.min(query, chosen.queries.length - 1));
}

function changeQuery(i) {
  query = i;
  const chosen = layers[layer.value];
  const weights = chosen.weights[head.value][i];
  queries.querySelectorAll("button").forEach((b, j) => b.setAttribute("aria-pressed", i === j));
  table.querySelectorAll("tr").forEach((tr, j) => tr.classList.toggle("chosen", j === i + 1));
  draw(weights);
  const largest = weights.map((w, j) => [w, chosen.keys[j]]).sort((a, b) => b[0] - a[0]).slice(0, 4);
  const parts = largest.filter(([w]) => w >= 0.005).map(([w, text]) => `${text} ${(100 * w).toFixed(0)}%`);
  summary.textContent = `${chosen.queries[i]}: ${parts.join(", ") || "nothing"}`;
}

function draw(weights) {
  const box = lines.getBoundingClientRect();
  const from = queries.querySelectorAll("button")[query].getBoundingClientRect();
  lines.replaceChildren(...[...keys.querySelectorAll("button")].flatMap((button, j) => {
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

queries.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const next = step && queries.querySelectorAll("button")[query + step];
  if (next) { event.preventDefault(); next.focus(); }
});
layer.addEventListener("change", changeLayer);
head.addEventListener("change", changeHead);
window.addEventListener("resize", () => changeQuery(query));
changeLayer();
