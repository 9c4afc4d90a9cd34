// Loads the sections of a run when they come near the screen, and draws their charts.
import { drawCharts } from "/static/charts.js";

async function load(place) {
  const answer = await fetch(place.dataset.load);
  if (!answer.ok) return;
  place.innerHTML = await answer.text();
  place.removeAttribute("aria-busy");
  if (!place.textContent.trim()) place.remove();
  else drawCharts(place);
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { watcher.unobserve(entry.target); load(entry.target); }
}, { rootMargin: "600px" });
document.querySelectorAll(".later[data-load]").forEach((place) => watcher.observe(place));
