"use strict";

const PAUSE = 200; // ms from one answer to the next question
const PATIENCE = 1000; // ms to the next try where there was no answer
const COUNT = 12; // envs shown at a time
let first = 0;
let cards = new Map();

const at = (id) => document.getElementById(id);

function number(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? value.toLocaleString("en", { maximumFractionDigits: digits }) : value;
}

function element(parent, name, className) {
  const made = document.createElement(name);
  if (className) made.className = className;
  parent.append(made);
  return made;
}

function card(env) {
  const box = element(at("envs"), "article");
  box.dataset.env = env.env;
  element(box, "h2").textContent = `env ${env.env}`;
  const made = { box, counts: element(box, "div", "counts"), text: element(box, "p", "text"), images: new Map(), states: new Map() };
  const images = element(box, "div", "images");
  for (const name of env.images) {
    const figure = element(images, "figure");
    const picture = element(figure, "img");
    picture.alt = `${name} of env ${env.env}`;
    element(figure, "figcaption").textContent = name;
    made.images.set(name, picture);
  }
  for (const name of Object.keys(env.states)) made.states.set(name, element(box, "div", "state"));
  made.shape = shape(env);
  return made;
}

const shape = (env) => JSON.stringify([env.images, Object.keys(env.states)]);

function update(shown, env) {
  const counts = [`return ${number(env.return)}`, `step ${number(env.length)}`];
  if (env.episodes > 0) counts.push(`episodes ${number(env.episodes)}`, `last return ${number(env.last_return)}`);
  shown.counts.textContent = counts.join(" · ");
  shown.text.textContent = env.text;
  for (const [name, line] of shown.states) {
    const state = env.states[name];
    const more = state.size > state.values.length ? ` … (${state.size})` : "";
    line.textContent = `${name}: ${state.values.map((value) => number(value, 3)).join("  ")}${more}`;
  }
  if (shown.frame === env.frame) return [];
  shown.frame = env.frame;
  return [...shown.images].map(([name, picture]) => {
    picture.src = `/images/${env.env}/${encodeURIComponent(name)}.png?${env.frame}`;
    return picture.decode().catch(() => {});
  });
}

function show(state) {
  document.title = at("title").textContent = state.title;
  at("steps").textContent = number(state.steps);
  at("rate").textContent = number(state.steps_per_second, 1);
  at("waiting").textContent = `${number(100 * state.waiting, 0)}%`;
  at("episodes").textContent = number(state.episodes);
  at("mean").textContent = number(state.mean_return);
  at("range").textContent = `${first + 1}–${Math.min(first + COUNT, state.num_envs)} of ${state.num_envs}`;
  document.querySelector("nav").hidden = state.num_envs <= COUNT;
  at("back").disabled = first === 0;
  at("on").disabled = first + COUNT >= state.num_envs;
  at("status").textContent =
    state.num_envs === 0 ? "Waiting for the first observation…" : state.running ? "" : "The run is over.";
  const left = new Map();
  let pictures = [];
  for (const env of state.envs) {
    let shown = cards.get(env.env);
    if (shown && shown.shape !== shape(env)) {
      shown.box.remove();
      shown = undefined;
    }
    shown = shown || card(env);
    left.set(env.env, shown);
    pictures = pictures.concat(update(shown, env));
  }
  for (const [env, shown] of cards) if (!left.has(env)) shown.box.remove();
  cards = left;
  return Promise.all(pictures);
}

async function look() {
  let pause = PAUSE;
  try {
    const answer = await fetch(`/state.json?first=${first}&count=${COUNT}`);
    await show(await answer.json());
  } catch (error) {
    at("status").textContent = "The client does not answer: the run may be over.";
    pause = PATIENCE;
  }
  setTimeout(look, document.hidden ? 5 * PAUSE : pause);
}

at("back").addEventListener("click", () => { first = Math.max(first - COUNT, 0); });
at("on").addEventListener("click", () => { first += COUNT; });
look();
