// Filters the table of runs while one types, without asking the server.
const field = document.querySelector("#filter input[name=q]");
const rows = [...document.querySelectorAll("#runs tbody tr")];
const count = document.querySelector("#count");

field?.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
    shown += row.hidden ? 0 : 1;
  }
  count.textContent = `${shown} of ${rows.length} runs`;
});
