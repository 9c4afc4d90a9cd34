// Follows runs at work by server-sent events: bars on the list, bar, task and curve on a run's own page.
const own = document.querySelector(".live[data-reload]")?.dataset.run;
const stream = new EventSource(own ? `/api/events?run=${encodeURIComponent(own)}` : "/api/events");

function points(curve, name, width, height) {
  const values = curve.map((line) => line[name]);
  const low = Math.min(...values), high = Math.max(...values);
  const x = (index) => (width * index) / Math.max(1, values.length - 1);
  const y = (value) => height - 4 - ((height - 8) * (value - low)) / (high - low || 1);
  return values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
}

function drawCurve(place, curve) {
  const name = Object.keys(curve.at(-1) ?? {}).find((key) => key !== "step");
  if (!name || curve.length < 2) return;
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", points(curve.filter((each) => Number.isFinite(each[name])), name, 600, 160));
  place.replaceChildren(line);
  place.setAttribute("aria-label", `${name} so far`);
}

stream.addEventListener("progress", (event) => {
  const state = JSON.parse(event.data);
  const place = document.querySelector(`[data-run="${CSS.escape(state.name)}"]`);
  if (!place) {
    document.querySelector("#new-run")?.removeAttribute("hidden");
    return;
  }
  if (state.state !== "running") {
    if (place.dataset.reload || place.classList.contains("live")) window.location.reload();
    return;
  }
  const share = state.share ?? 0;
  const bar = place.querySelector("progress");
  if (bar) bar.value = share;
  const percent = place.querySelector(".percent");
  if (percent) percent.textContent = `${Math.round(100 * share)} %`;
  const task = place.querySelector(".task");
  if (task) task.textContent = state.task ?? "";
  const line = place.querySelector(".line");
  if (line) line.textContent = Object.entries(state.line ?? {}).map(([name, value]) => `${name} ${Number(value).toPrecision(3)}`).join("  ");
  const spark = place.querySelector(".spark");
  if (spark && state.curve) drawCurve(spark, state.curve);
});
