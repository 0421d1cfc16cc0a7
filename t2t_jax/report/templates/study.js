// Makes charts interactive and shows one sentence at a time; without scripts the page shows pictures
// and all sentences.
const specs = document.getElementById("specs");
if (specs && window.vegaEmbed) {
  const all = JSON.parse(specs.textContent);
  for (const figure of document.querySelectorAll(".chart")) {
    const options = { renderer: "svg", actions: { export: true, source: false, compiled: false, editor: false } };
    const picture = figure.innerHTML;
    window.vegaEmbed(figure, all[figure.dataset.spec], options).then(
      () => figure.removeAttribute("role"),
      (error) => { figure.innerHTML = picture; console.error(error); },
    );
  }
}
const menu = document.getElementById("sentence");
if (menu) {
  const show = () => {
    for (const sample of document.querySelectorAll("[data-sentence]")) {
      sample.hidden = sample.dataset.sentence !== menu.value;
    }
  };
  menu.addEventListener("change", show);
  show();
}
