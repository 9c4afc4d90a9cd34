// The scatter plot's brush chooses which settings the table beside it shows and ticks.
const table = document.querySelector("#settings");
const count = document.querySelector(".brush-count");

function show(within, ticked = true) {
  const rows = [...table.tBodies[0].rows];
  for (const row of rows) {
    row.hidden = !within(Number(row.dataset.x), Number(row.dataset.y));
    row.querySelector("input").checked = ticked && !row.hidden;
  }
  count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} settings`;
}

function listen(view) {
  view.addSignalListener("brush", (_, chosen) => {
    const [x, y] = [chosen.x, chosen.y];
    if (!x || !y) show(() => true, false);
    else show((a, b) => a >= Math.min(...x) && a <= Math.max(...x) && b >= Math.min(...y) && b <= Math.max(...y));
  });
}

const place = document.querySelector(".brushed .chart");
if (place?.view) listen(place.view);
else place?.addEventListener("chart-drawn", (event) => listen(event.detail.view));
