// Draws the charts of a page: each `<div class="chart" data-chart="PLACE">` is one of the list that `#charts` holds.
// Vega's expressions are interpreted, so the page needs no eval.
const options = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true } };

async function readCharts(root) {
  const source = root.querySelector("#charts");
  if (!source) return [];
  const bytes = Uint8Array.from(atob(source.textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).json();
}

async function drawChart(place, charts) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "begun";
  const spec = (await charts)[place.dataset.chart];
  const { view } = await window.vegaEmbed(place, spec, options);
  const picture = place.querySelector("svg");
  if (picture) {
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", place.dataset.alt || "chart");
    // Vega gives marks without words, as a brush, a role that must have some.
    for (const mark of picture.querySelectorAll('[role="graphics-symbol"]:not([aria-label])')) mark.removeAttribute("role");
  }
  place.view = view;
  place.dataset.drawn = "done";
  place.dispatchEvent(new CustomEvent("chart-drawn", { bubbles: true, detail: { view } }));
}

/** Draw every chart under `root`: those near the screen now, the others when they come near or the page is printed. */
export function drawCharts(root = document) {
  const charts = readCharts(root);
  const places = [...root.querySelectorAll(".chart[data-chart]")];
  const draw = (place) => drawChart(place, charts).catch((problem) => { place.textContent = `This chart failed: ${problem.message}`; throw problem; });
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "800px" });
  places.forEach((place) => watcher.observe(place));
  window.addEventListener("beforeprint", () => places.forEach(draw));
  return () => Promise.all(places.map(draw));
}

window.drawAllCharts = drawCharts(document);
