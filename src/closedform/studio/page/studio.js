// The page of closedform studio: connects to the session, and shows what it says.

import { LEVELS, thumbnail } from "./drawing.js";
import { Stage } from "./stage.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
// The token stays with this tab, and leaves the address bar, where it would be seen, shared and remembered.
const given = new URLSearchParams(location.search).get("token");
if (given) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
const token = sessionStorage.getItem("token") ?? "";
const percent = (x) => `${Math.round(100 * x)}%`;
const state = { drives: false, filter: "all", takes: [], cards: new Map(), fresh: null, findings: {}, examining: false };
let socket = null, waiting = false, lastSent = undefined;

const send = (message) => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); };
const command = (name, more = {}) => send({ type: "command", name, ...more });

// At most one message for each frame of the screen, the newest one.
const stage = new Stage($("scene"), (point) => {
  if (!state.drives) return;
  lastSent = point;
  if (point === null) return send({ type: "pointer", point });
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (lastSent) send({ type: "pointer", point: lastSent.map((x) => Math.round(1e4 * x) / 1e4) });
  });
});
const timeline = new Timeline($("timeline"));
window.studio = { stage, state, socket: () => socket }; // for scripts that drive this page

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/socket?token=${encodeURIComponent(token)}`);
  socket.onmessage = (event) => {
    const { kind, ...content } = JSON.parse(event.data);
    heard[kind]?.(content);
  };
  socket.onclose = () => {
    stage.release();
    document.body.dataset.driver = "nobody";
    $("who").textContent = "connection lost, trying again";
    setTimeout(connect, 700);
  };
}

const heard = {
  hello(content) {
    state.hello = content;
    timeline.most = content.max_steps;
    stage.hello(content);
    document.body.classList.toggle("pictured", stage.pictured);
    const hold = matchMedia("(pointer: coarse)").matches ? "Put a finger on the scene" : "Hold the mouse";
    $("task").textContent = stage.pictured ? `${hold} to move the hand, turn the wheel for its height, press G to grip.`
      : `${hold} and ${content.task || "move the hand"}.`;
    $("frames").replaceChildren(...content.frames.map((name) => new Option(name, name)));
    state.cards.clear();
    $("strip").replaceChildren();
  },
  frame(frame) {
    stage.advance(frame);
    state.frame = frame;
    timeline.add(frame, stage.plan);
    document.body.dataset.driver = frame.paused ? "nobody" : frame.driver;
    $("who").textContent = frame.paused ? "paused" : frame.driver === "person" ? `you drive · ${frame.recorded} steps`
      : frame.driver === "policy" ? "the policy drives" : frame.outcome ? "next start" : "waiting for you";
    $("hint").hidden = !frame.waiting || frame.paused || !state.drives;
    $("pause").classList.toggle("on", frame.paused);
    if (document.activeElement !== $("seed")) $("seed").value = frame.seed;
    $("progress").firstChild.style.width = percent(Math.min(1, frame.step / state.hello.max_steps));
    if (!stage.playback) {
      $("ending").hidden = !frame.outcome;
      $("ending").className = frame.outcome === "success" ? "" : "failed";
      $("ending").textContent = frame.outcome === "success" ? `Solved in ${(frame.step / state.hello.rate).toFixed(1)} s` : "Out of time";
    }
  },
  picture({ address }) { stage.picture(address); },
  insight({ plan }) {
    stage.plan = plan;
    $("planned").textContent = plan ? `planned in ${plan.milliseconds.toFixed(1)} ms` : "";
    $("effective").textContent = plan ? plan.n_effective.toFixed(1) : "–";
    $("frame").textContent = plan ? plan.frame : "–";
    const level = plan?.level, share = level ? plan.share_farther : 0, color = level ? LEVELS[level] : "";
    $("familiar").textContent = level ?? "–";
    $("familiar").style.color = color ? `var(--${color})` : "";
    $("familiar-note").textContent = level ? `nearer than ${percent(share)}` : "after two episodes";
    Object.assign($("meter").style, { width: percent(share), background: `var(--${color || "line"})` });
    showBehind(plan);
  },
  board(board) {
    const { n, successes, ci95 } = board.alone;
    $("rate").textContent = n ? percent(successes / n) : "–";
    $("rate-note").textContent = n ? `${successes} of ${n} alone, 95%: ${percent(ci95[0])} to ${percent(ci95[1])}`
      : "no run by the policy alone yet";
    Object.assign($("interval").style, n ? { left: percent(ci95[0]), width: percent(ci95[1] - ci95[0]) } : { width: 0 });
    Object.assign($("mean").style, n ? { display: "block", left: percent(successes / n) } : { display: "none" });
    $("runs").replaceChildren(...board.recent.map((run) => {
      const mark = document.createElement("i");
      mark.className = `${run.helped ? "helped" : ""} ${run.success ? "" : "failed"}`;
      mark.title = `seed ${run.seed}: ${run.success ? "solved" : `score ${run.score}`}${run.helped ? ", with help" : ""}`;
      return mark;
    }));
    const since = board.since_edit;
    showChange(board.before_edit, since, board.helped);
  },
  takes({ takes, can_undo }) {
    const known = new Set(state.takes.map((take) => take.number)), first = !state.cards.size;
    state.takes = takes;
    state.fresh = first ? null : takes.find((take) => !known.has(take.number))?.number;
    $("undo").disabled = !can_undo;
    showTakes();
    if (state.filter === "watch") examine();
  },
  parameters({ values }) {
    for (const name of ["bandwidth", "tau", "n_execute", "frames"]) {
      const input = $(name);
      input.closest("label").hidden = !(name in values);
      if (!(name in values) || document.activeElement === input) continue;
      if (name === "frames" && ![...input.options].some((option) => option.value === values[name])) input.add(new Option(values[name]));
      input.value = name === "bandwidth" ? Math.log10(values[name]) : values[name];
      showValue(input);
    }
  },
  paired({ answer }) {
    $("compare").disabled = Boolean(answer?.running);
    $("compared").textContent = !answer ? "" : answer.running ? `running ${answer.n} starts without and with episode ${answer.take}`
      : `without episode ${answer.take}: ${answer.without} of ${answer.n}, with it: ${answer.with_it} (${answer.better} better, ${answer.worse} worse)`;
  },
  findings({ answer }) {
    state.findings = answer?.takes ?? {};
    state.examining = false;
    for (const take of state.takes) if (state.cards.has(take.number)) mark(state.cards.get(take.number), take);
    showTakes();
    if (answer && !answer.current && state.filter === "watch") examine();
  },
  map({ answer }) {
    stage.map = answer;
    if (answer) $("show-map").checked = true;
  },
  clock: ({ late, steps }) => { $("clock").textContent = steps > 20 ? `${((100 * late) / steps).toFixed(1)}% of steps late` : ""; },
  role({ drives, others }) {
    state.drives = drives;
    document.body.classList.toggle("watching", !drives);
    $("watching").hidden = drives;
    if (!drives) stage.release();
  },
  episode({ take, poses }) {
    const wasPaused = state.frame?.paused;
    if (state.drives && !wasPaused) command("pause", { paused: true });
    stage.play(take, poses, () => {
      $("ending").hidden = true;
      if (state.drives && !wasPaused) command("pause", { paused: false });
    });
    Object.assign($("ending"), { hidden: false, className: "playing", textContent: `Playing episode ${take}` });
  },
  notice({ text }) {
    const line = document.createElement("p");
    line.textContent = text;
    $("notices").append(line);
    while ($("notices").children.length > 4) $("notices").firstChild.remove();
    setTimeout(() => line.remove(), 6000);
  },
};

function showBehind(plan) {
  const behind = (plan?.behind || []).filter(({ weight }) => weight > 0.005), used = new Set(behind.map((ghost) => ghost.take));
  for (const [number, card] of state.cards) card.classList.toggle("used", used.has(number));
  if (!plan) {
    const line = document.createElement("li");
    line.className = "none";
    line.textContent = "Every action is a weighted average of demonstrations; they are named here once the policy plans.";
    return $("behind").replaceChildren(line);
  }
  $("behind").replaceChildren(...behind.map(({ take, step, weight }) => {
    const line = document.createElement("li"), bar = document.createElement("i"), number = document.createElement("em");
    bar.style.width = percent(weight);
    number.textContent = percent(weight);
    const picture = document.createElement("canvas");
    const name = document.createElement("span"), when = document.createElement("small");
    const known = state.takes.find((other) => other.number === take);
    name.textContent = `episode ${take}`;
    when.textContent = `at ${(step / state.hello.rate).toFixed(1)} s`;
    name.append(when);
    line.append(picture, name, bar, number);
    if (known) queueMicrotask(() => thumbnail(picture, state.hello, known, step));
    line.title = `episode ${take} from step ${step}: click to play it`;
    line.onclick = () => send({ type: "watch", take });
    return line;
  }));
}

// How the policy did before the last change and since.
function showChange(before, since, helped) {
  const rate = ({ n, successes }) => (n ? `${percent(successes / n)} (${successes} of ${n})` : "none");
  const change = before.n || since.n ? `before the last change ${rate(before)}, since ${rate(since)}` : "";
  $("since").textContent = [change, helped ? `${helped} with help` : ""].filter(Boolean).join("; ");
}

const filters = {
  all: () => true, success: (take) => take.success, correction: (take) => take.kind === "correction",
  mine: (take) => take.kind !== "recorded", watch: (take) => state.findings[take.number],
};

function showTakes() {
  const shown = state.takes.filter(filters[state.filter]).reverse(), numbers = new Set(state.takes.map((take) => take.number));
  for (const number of state.cards.keys()) if (!numbers.has(number)) state.cards.delete(number);
  $("count").textContent = shown.length === state.takes.length ? `${shown.length}` : `${shown.length} of ${state.takes.length}`;
  $("strip").dataset.none = !state.takes.length ? "What you drive appears here, one episode each time that you let go."
    : state.examining ? "Checking the episodes." : state.filter === "watch" ? "The health checks found nothing that you should look at." : "None of the episodes.";
  $("strip").replaceChildren(...shown.map((take) => {
    if (!state.cards.has(take.number)) state.cards.set(take.number, makeCard(take));
    const card = state.cards.get(take.number);
    card.classList.toggle("new", take.number === state.fresh);
    return card;
  }));
  for (const take of shown) {
    const card = state.cards.get(take.number);
    if (card.drawn) continue;
    card.drawn = true;
    thumbnail(card.querySelector("canvas"), state.hello, take);
  }
  if (state.fresh !== null && state.fresh !== undefined) $("strip").scrollLeft = 0;
  state.fresh = null; // it arrives once
}

function examine() {
  state.examining = true;
  command("examine");
}

// What the health checks found about an episode.
function mark(card, take) {
  const found = state.findings[take.number];
  card.classList.toggle("found", Boolean(found));
  card.title = [`${take.kind} of ${take.steps} steps: click to play it`, ...(found || [])].join("\n");
}

function makeCard(take) {
  const card = document.createElement("div"), label = document.createElement("span"), remove = document.createElement("button");
  card.className = `take ${take.kind}`;
  card.tabIndex = 0;
  mark(card, take);
  const name = document.createElement("b"), length = document.createElement("i");
  name.textContent = take.number;
  length.textContent = take.success ? "✓" : take.kind === "correction" ? "fix" : `${(take.steps / state.hello.rate).toFixed(0)} s`;
  length.className = take.success ? "success" : "";
  label.append(name, length);
  remove.textContent = "×";
  remove.title = "Delete";
  remove.setAttribute("aria-label", `Delete episode ${take.number}`);
  remove.onclick = (event) => { event.stopPropagation(); command("delete", { take: take.number }); };
  card.onclick = () => send({ type: "watch", take: take.number });
  card.append(document.createElement("canvas"), label, remove);
  return card;
}

const toggle = () => (stage.playback ? stage.stop() : command("pause"));
const keys = {
  r: () => command("retry"), " ": toggle, q: () => command("end"), z: () => command("undo"), g: () => stage.grip(),
};
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input[type=number], select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !keys[event.key.toLowerCase()]) return;
  event.preventDefault();
  keys[event.key.toLowerCase()]();
});
$("retry").onclick = keys.r;
$("pause").onclick = toggle;
$("end").onclick = keys.q;
$("grip").onclick = keys.g;
$("undo").onclick = keys.z;
$("show-me").onclick = () => command("show_me");
$("compare").onclick = () => command("compare");
$("show-map").onchange = (event) => command("map", { on: event.target.checked });
$("claim").onclick = () => send({ type: "claim" });
$("seed").onkeydown = (event) => {
  if (event.key === "Escape") event.target.blur();
  if (event.key !== "Enter") return;
  command("start", { seed: Number(event.target.value) });
  event.target.blur();
};
for (const button of document.querySelectorAll("nav button, .bar button")) button.addEventListener("click", () => button.blur());
for (const button of document.querySelectorAll("[data-filter]")) {
  button.addEventListener("click", () => {
    state.filter = button.dataset.filter;
    for (const other of document.querySelectorAll("[data-filter]")) other.classList.toggle("on", other === button);
    if (state.filter === "watch") examine();
    showTakes();
  });
}
for (const name of ["ghosts", "fan", "chunk"]) $(`show-${name}`).onchange = (event) => { stage.show[name] = event.target.checked; };

function showValue(input) {
  const output = input.parentElement.querySelector("output");
  if (output) output.textContent = input.id === "bandwidth" ? (10 ** input.value).toPrecision(2) : input.value;
}
for (const name of ["bandwidth", "tau", "n_execute", "frames"]) {
  const input = $(name);
  input.addEventListener("input", () => showValue(input));
  input.addEventListener("change", () => {
    const value = name === "frames" ? input.value : name === "bandwidth" ? Number((10 ** input.value).toPrecision(3)) : Number(input.value);
    input.blur();
    command("parameters", { parameters: { [name]: value } });
  });
}
for (const button of document.querySelectorAll("[data-export]")) {
  button.addEventListener("click", async () => {
    const answer = await fetch(`export/${button.dataset.export}?token=${encodeURIComponent(token)}`).catch(() => null);
    if (!answer?.ok) return heard.notice({ text: answer ? await answer.text() : "not exported: the connection is lost" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `studio-${button.dataset.export}.zip`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}
showBehind(null);
if (token) connect(); else $("who").textContent = "open the address that closedform studio printed";
