// Shows two to six chosen rows side by side: the config fields in which they differ, and their results.
const side = document.getElementById("side");

function line(name, contents) {
  const row = document.createElement("tr");
  [name, ...contents].forEach((content, i) => {
    const cell = document.createElement(i ? "td" : "th");
    if (!i) cell.scope = "row";
    cell.append(content);
    row.append(cell);
  });
  return row;
}

function strong(text) {
  const node = document.createElement("strong");
  node.textContent = text;
  return node;
}

function measureLines(metric, rows) {
  const digits = metric === "PPL" ? 3 : 2;
  const number = (x) => (x === null || x === undefined ? "" : x.toFixed(digits));
  const spread = ({ mean, deviation } = {}) => number(mean) + (deviation == null ? "" : ` ± ${number(deviation)}`);
  const seeds = [...new Set(rows.flatMap((row) => row.runs.map((run) => run.seed)))].sort((a, b) => a - b);
  const of = (seed) => (row) => number(row.runs.find((run) => run.seed === seed)?.[metric]);
  const means = rows.map((row) => spread(row.measures[metric]));
  const difference = rows.length === 2 ? test(metric, digits, ...rows) : [];
  return [
    line(metric, [...means, ...difference]),
    ...seeds.map((seed) => line(`${metric}, seed ${seed}`, rows.map(of(seed)))),
  ];
}

// The second row minus the first, its interval and p, which is bold if it is significant.
function test(metric, digits, { name: first }, { name: second }) {
  const pair = data.pairs[metric]?.find((x) => x.includes(first) && x.slice(0, 2).includes(second));
  if (!pair) return [];
  const [one, , ...numbers] = pair;
  const p = numbers.pop();
  const [size, low, high] = one === second ? numbers : [-numbers[0], -numbers[2], -numbers[1]];
  const signed = (x) => (x > 0 ? "+" : "") + x.toFixed(digits);
  const shown = p === null ? "one seed" : p.toPrecision(3);
  return [signed(size), `${signed(low)} to ${signed(high)}`, p !== null && p < data.level ? strong(shown) : shown];
}

function setSideBySide(indices) {
  side.hidden = indices.length < 2 || indices.length > 6;
  if (side.hidden) return;
  const rows = indices.map((i) => data.rows[i]);
  const fields = [...new Set(rows.flatMap((row) => Object.keys(row.config)))];
  const text = (row, field) => String(row.config[field] ?? "");
  const differing = fields.filter((field) => rows.some((row) => text(row, field) !== text(rows[0], field)));
  const headings = [...rows.map((row) => row.name), ...(rows.length === 2 ? ["difference", "95% interval", "p"] : [])];
  const head = document.createElement("tr");
  head.append(document.createElement("td"), ...headings.map((name) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    return cell;
  }));
  const table = side.querySelector("table");
  table.replaceChildren(
    head,
    ...differing.map((field) => line(field, rows.map((row) => text(row, field)))),
    ...data.measures.flatMap((metric) => measureLines(metric, rows)),
  );
}

followers.push(setSideBySide);
update();
