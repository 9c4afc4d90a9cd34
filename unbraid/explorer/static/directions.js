// Pan and zoom the cosine matrix: drag, arrow keys, + and −; pointing at a cell says whose cosine it is.
const matrix = document.getElementById("matrix");
const PIXELS = 512;
const picture = matrix.querySelector("img");
const state = Object.fromEntries(
  ["rows", "columns", "row", "column", "zoom", "nearest", "widest", "pooled"].map((name) => [name, Number(matrix.dataset[name])]),
);
const { base, query } = matrix.dataset;
const cellsPerPixel = () => 2 ** state.zoom;
const span = () => Math.max(1, Math.floor(PIXELS * cellsPerPixel()));
const within = (value, low, high) => Math.min(Math.max(value, low), high);

// From afar the server may send a sketch first; the exact picture takes its place when it is there.
function settle(place) {
  if (state.zoom < state.pooled) return;
  const address = `${base}/tile?${place}&exact=1`;
  const exact = new Image();
  exact.addEventListener("load", () => { if (place === placeNow()) picture.src = address; });
  exact.src = address;
}
const placeNow = () => `${query}&row=${state.row}&column=${state.column}&zoom=${state.zoom}`;

function show(row, column, zoom) {
  state.zoom = within(zoom, state.nearest, state.widest);
  const step = Math.max(1, cellsPerPixel());
  const last = (size) => Math.max(0, size - Math.min(size, span()));
  state.row = Math.floor(within(Math.round(row), 0, last(state.rows)) / step) * step;
  state.column = Math.floor(within(Math.round(column), 0, last(state.columns)) / step) * step;
  const place = placeNow();
  picture.removeAttribute("width");
  picture.removeAttribute("height");
  picture.src = `${base}/tile?${place}`;
  settle(place);
  history.replaceState(null, "", `?${place}`);
  const end = (start, size) => Math.min(start + span(), size) - 1;
  const rows = `Rows ${state.row} to ${end(state.row, state.rows)}`;
  const columns = `columns ${state.column} to ${end(state.column, state.columns)}`;
  const pooled = step > 1 ? `; a pixel shows the largest cosine (in size) of ${step} × ${step} cells` : "";
  document.getElementById("where").textContent = `${rows}, ${columns}${pooled}.`;
  picture.alt = `Cosines of ${rows.toLowerCase()} with ${columns}`;
}

const MOVES = {
  left: () => show(state.row, state.column - span() / 4, state.zoom),
  right: () => show(state.row, state.column + span() / 4, state.zoom),
  up: () => show(state.row - span() / 4, state.column, state.zoom),
  down: () => show(state.row + span() / 4, state.column, state.zoom),
  nearer: () => show(state.row, state.column, state.zoom - 1),
  farther: () => show(state.row, state.column, state.zoom + 1),
  whole: () => show(0, 0, state.widest),
};
const KEYS = { ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down", "+": "nearer", "=": "nearer", "-": "farther" };

for (const link of document.querySelectorAll("[data-move]")) {
  link.classList.remove("off");
  if (!link.href) link.setAttribute("role", "button");
  link.tabIndex = 0;
  link.addEventListener("click", (event) => { event.preventDefault(); MOVES[link.dataset.move](); });
}
matrix.addEventListener("keydown", (event) => {
  if (event.key in KEYS && !event.ctrlKey && !event.metaKey) { event.preventDefault(); MOVES[KEYS[event.key]](); }
});

function cellAt(event) {
  const box = picture.getBoundingClientRect();
  const scale = (picture.naturalWidth / box.width) * cellsPerPixel();
  return [state.row + Math.floor((event.clientY - box.top) * scale), state.column + Math.floor((event.clientX - box.left) * scale)];
}

settle(placeNow());

let timer, dragged;
picture.draggable = false;
picture.addEventListener("pointerdown", (event) => {
  dragged = { at: cellAt(event), row: state.row, column: state.column };
  picture.setPointerCapture(event.pointerId);
});
picture.addEventListener("pointerup", (event) => {
  if (!dragged) return;
  const [row, column] = cellAt(event);
  if (row !== dragged.at[0] || column !== dragged.at[1]) {
    show(dragged.row + dragged.at[0] - row, dragged.column + dragged.at[1] - column, state.zoom);
  }
  dragged = undefined;
});
picture.addEventListener("pointermove", (event) => {
  if (dragged) return;
  clearTimeout(timer);
  const [row, column] = cellAt(event);
  if (row >= state.rows || column >= state.columns || row < 0 || column < 0) return;
  timer = setTimeout(async () => {
    const answer = await fetch(`${base}/cell?${query}&row=${row}&column=${column}`);
    if (!answer.ok) return;
    const cell = await answer.json();
    const link = Object.assign(document.createElement("a"), { href: cell.href, textContent: `feature ${cell.feature}` });
    document.getElementById("cell").replaceChildren(`Concept ${cell.concept} with `, link, `: cosine ${cell.cosine.toFixed(3)}`);
  }, 60);
});
