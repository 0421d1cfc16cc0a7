// Sorts the rows of a table by the column of a clicked heading: up, down, then in the original order.
function sortable(table) {
  const original = [...table.tBodies].map((body) => [body, [...body.rows]]);
  const heading = table.querySelector("tr.sorting");
  [...heading.cells].forEach((cell, column) => {
    if (!cell.textContent) return;
    const button = document.createElement("button");
    button.textContent = cell.textContent;
    button.type = "button";
    cell.replaceChildren(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: "" }[cell.getAttribute("aria-sort")] ?? "ascending";
      for (const other of heading.cells) other.removeAttribute("aria-sort");
      for (const [body, rows] of original) body.append(...rows);
      if (!next) return;
      cell.setAttribute("aria-sort", next);
      const sign = next === "ascending" ? 1 : -1;
      const rows = original.flatMap(([, rows]) => rows).map((row) => [value(cell, row, column), row]);
      rows.sort(([a], [b]) => ((a === "") - (b === "")) || sign * compareValues(a, b));
      original[0][0].append(...rows.map(([, row]) => row));
    });
  });
}

// The value of a row in a column; a config field that is blank in the table has the row's own value.
function value(heading, row, column) {
  const text = row.cells[column].textContent.trim();
  const config = data.rows[row.dataset.index]?.config ?? {};
  const shown = config[heading.dataset.field] ?? text;
  return shown === "" || Number.isNaN(parseFloat(shown)) ? shown : parseFloat(shown);
}

function compareValues(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

each("table:has(tr.sorting)", sortable);
