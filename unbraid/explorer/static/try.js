// The Try page: asks the worker, shows tokens, features, attention and predictions, and edits features.
const form = document.getElementById("try");
const at = (id) => document.getElementById(id);
const { run, features: featuresBase } = form.dataset;
const edits = new Map();
let stacks = [], answer, token = 0, examples = 0;
if (form.dataset.feature) edits.set(Number(form.dataset.feature), 0);

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function ask(op, question = {}) {
  const body = JSON.stringify({ run, op, ...question });
  const reply = await fetch("/api/try", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (!reply.ok) throw new Error(await reply.text());
  return reply.json();
}

async function busy(words, work) {
  at("status").className = "";
  at("status").textContent = words;
  for (const button of document.querySelectorAll("main button")) button.disabled = true;
  try {
    await work();
    at("status").textContent = "";
  } catch (problem) {
    at("status").className = "problem";
    at("status").textContent = problem.message;
  } finally {
    for (const button of document.querySelectorAll("main button")) button.disabled = false;
  }
}

const who = () => { const [stack, member] = at("who").value.split("/").map(Number); return { stack, member }; };
const stackOf = () => stacks.find((card) => card.stack === who().stack);

function describeStack() {
  const card = stackOf();
  at("text-label").textContent = card.reads === "story" ? "A story, with a question" : "A text";
  at("words").hidden = !card.words.length;
  at("words").querySelector("p").textContent = card.words.filter((word) => !word.startsWith("<")).join(" ");
}

async function read() {
  const changed = [...edits].map(([feature, scale]) => ({ feature, scale }));
  answer = await ask("read", { ...who(), text: at("text").value, edits: stackOf().features ? changed : [] });
  const asked = answer.predictions.at(-1)?.position ?? answer.tokens.length - 1;
  token = Math.min(token || asked, answer.tokens.length - 1);
  fillLights();
  show();
}

function fillLights() {
  const before = at("light").value;
  const fires = answer.features.some((list) => list.length);
  const options = fires ? [["features", "the strongest feature on each"]] : [];
  const all = new Set(answer.features.flat().map((fired) => fired.feature));
  options.push(...[...all].sort((a, b) => a - b).map((feature) => [`f${feature}`, `feature ${feature}`]));
  answer.attention.forEach((heads, place) => heads.forEach((_, head) =>
    options.push([`a${place}.${head}`, `what the chosen token looks at: layer ${answer.layers[place]}, head ${head}`])));
  at("light").replaceChildren(...options.map(([value, textContent]) => element("option", { value, textContent })));
  if (options.some(([value]) => value === before)) at("light").value = before;
}

function lights() {
  const how = at("light").value;
  if (how.startsWith("a")) {
    const [place, head] = how.slice(1).split(".").map(Number);
    return answer.attention[place][head][token];
  }
  const wanted = how.startsWith("f") && how !== "features" ? Number(how.slice(1)) : undefined;
  const values = answer.features.map((list) =>
    (wanted === undefined ? list[0] : list.find((fired) => fired.feature === wanted))?.value ?? 0);
  const most = Math.max(...values) || 1;
  return values.map((value) => value / most);
}

const printed = (word) => (word.trim() ? word : word === " " ? "␣" : "⏎");

function show() {
  at("answer").hidden = false;
  const shares = lights();
  at("tokens").replaceChildren(...answer.tokens.flatMap((word, place) => {
    const lit = shares[place] >= 0.02 ? Math.min(8, Math.ceil(8 * shares[place])) : 0;
    const button = element("button", { type: "button", textContent: printed(word), className: `lit-${lit}${place === token ? " here" : ""}` });
    button.setAttribute("aria-pressed", String(place === token));
    button.title = answer.features[place].map(({ feature, value }) => `feature ${feature}: ${value.toFixed(3)}`).join("\n") || word;
    button.addEventListener("click", () => { token = place; show(); at("tokens").querySelector("[aria-pressed=true]").focus(); });
    return [button, " "];
  }));
  at("hint").textContent = "Choose a token to see its features" + (answer.attention.length ? " and what its heads look at." : ".");
  showFiring();
  showPredictions();
  showEdits();
}

function scaleControls(feature, scale) {
  const input = element("input", { type: "number", step: "0.5", value: String(scale) });
  input.setAttribute("aria-label", `Scale of feature ${feature}`);
  input.addEventListener("change", () => edit(feature, Number(input.value)));
  const silence = element("button", { type: "button", textContent: "Silence" });
  silence.setAttribute("aria-label", `Silence feature ${feature}`);
  silence.addEventListener("click", () => edit(feature, 0));
  return ["×", input, silence];
}

function featureLink(feature) {
  const { stack, member } = who();
  return element("a", { href: `${featuresBase}/${stack}/${member}/${feature}`, textContent: `feature ${feature}` });
}

function showFiring() {
  const list = answer.features[token];
  at("firing-section").hidden = !stackOf().features;
  at("firing-title").textContent = `Features on “${printed(answer.tokens[token])}”`;
  at("firing").replaceChildren(...list.map(({ feature, value }) =>
    element("li", {}, featureLink(feature), element("span", { className: "soft", textContent: value.toFixed(3) }),
      ...scaleControls(feature, edits.get(feature) ?? 1))));
  if (!list.length) at("firing").append(element("li", { className: "soft", textContent: "No feature fires here." }));
}

function bars(title, top) {
  const rows = top.map(({ answer: word, probability }) => {
    const meter = element("meter", { min: 0, max: 1, value: probability });
    meter.setAttribute("aria-label", `Probability of ${word}`);
    return element("li", {}, element("span", { textContent: printed(word) }), meter,
      element("span", { textContent: `${(100 * probability).toFixed(1)} %` }));
  });
  return element("div", {}, element("h3", { textContent: title }), element("ul", { className: "predictions" }, ...rows));
}

function showPredictions() {
  const story = stackOf().reads === "story";
  const places = story ? answer.predictions : answer.predictions.filter(({ position }) => position === token);
  at("predictions").replaceChildren(...places.flatMap((prediction) => {
    const edited = answer.edited?.find(({ position }) => position === prediction.position);
    const which = story && answer.predictions.length > 1 ? ` (question ${answer.predictions.indexOf(prediction) + 1})` : "";
    const box = element("div", { className: "beside" }, bars(edited ? `As it is${which}` : `Answer${which}`, prediction.top));
    if (edited) {
      const [was, is] = [prediction.top[0].answer, edited.top[0].answer];
      box.append(bars(`Edited${which}`, edited.top));
      const verdict = was === is ? `It still says ${was}.` : `It said ${was}; edited, it says ${is}.`;
      return [element("p", { className: "verdict", textContent: verdict }), box];
    }
    return [box];
  }));
  if (!places.length) at("predictions").append(element("p", { className: "soft", textContent: "Nothing is predicted here." }));
}

function showEdits() {
  at("edits-section").hidden = !edits.size;
  at("edits").replaceChildren(...[...edits].map(([feature, scale]) => {
    const undo = element("button", { type: "button", textContent: "Undo" });
    undo.setAttribute("aria-label", `Undo the edit of feature ${feature}`);
    undo.addEventListener("click", () => edit(feature, 1));
    return element("li", {}, featureLink(feature), ...scaleControls(feature, scale).slice(0, 2), undo);
  }));
}

function edit(feature, scale) {
  if (!Number.isFinite(scale)) return;
  if (scale === 1) edits.delete(feature); else edits.set(feature, scale);
  busy("Reading…", read);
}

form.addEventListener("submit", (event) => { event.preventDefault(); token = 0; busy("Reading…", read); });
at("light").addEventListener("change", show);
at("who").addEventListener("change", () => { edits.clear(); token = 0; describeStack(); busy("Reading…", read); });
at("example").addEventListener("click", () => busy("Reading…", async () => {
  at("text").value = (await ask("example", { ...who(), index: ++examples })).text;
  token = 0;
  await read();
}));

busy("Loading the model…", async () => {
  ({ stacks } = await ask("describe"));
  if (!stacks.length) throw new Error("This run has no model that can be tried.");
  at("who").replaceChildren(...stacks.flatMap(({ stack, members }) => members.map(({ member, label, replicate }) =>
    element("option", { value: `${stack}/${member}`, textContent: `${label || "the only setting"}, replicate ${replicate}` }))));
  if (form.dataset.stack) at("who").value = `${form.dataset.stack}/${form.dataset.member}`;
  if (!at("who").value) at("who").selectedIndex = 0;
  describeStack();
  at("text").value = stackOf().example;
  await read();
});
