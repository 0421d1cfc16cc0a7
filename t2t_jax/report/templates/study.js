// Charts come to life, and one sentence is shown at a time; without this all stand there as they are.
const specs = document.getElementById("specs");
if (specs && window.vegaEmbed) {
  const known = JSON.parse(specs.textContent);
  for (const place of document.querySelectorAll(".chart")) {
    const options = { renderer: "svg", actions: { export: true, source: false, compiled: false, editor: false } };
    const picture = place.innerHTML;
    window.vegaEmbed(place, known[place.dataset.spec], options).then(
      () => place.removeAttribute("role"),
      (error) => { place.innerHTML = picture; console.error(error); },
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
