// The rollouts of a page: a grid in which all of them move, and one of them in detail with the plan at each moment.

const groups = JSON.parse(document.getElementById("rollouts").textContent);
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
const make = (tag, attributes = {}, ...children) => {
  const { class: name, ...rest } = attributes, element = Object.assign(document.createElement(tag), rest);
  if (name) element.className = name;
  element.append(...children);
  return element;
};
const LEVELS = { familiar: "good", rare: "warn", "out of range": "bad" };
const steps = (rollout) => rollout.scores.length;
const planAt = (rollout, t) => rollout.plans.findLast((plan) => plan.t <= Math.floor(t)) ?? rollout.plans[0];
const film = (rollout) => make("video", { src: rollout.film, muted: true, playsInline: true, preload: "auto" });
const percent = (share) => `${(100 * share).toFixed((share < 0.1 && share > 0) || (share >= 0.99 && share < 0.9995) ? 1 : 0)}%`;

function outcome(group, rollout) {
  if (rollout.success) return `✓ ${(steps(rollout) / group.rate).toFixed(1)} s`;
  return `score ${rollout.score.toFixed(2)}`;
}

class Grid {
  constructor(root, group, open) {
    Object.assign(this, { group, t: 0, playing: !still, speed: 2, before: null, drawn: null });
    this.most = Math.max(...group.rollouts.map(steps));
    this.count = make("output");
    this.button = make("button", { onclick: () => this.toggle() });
    const faster = make("button", { textContent: `${this.speed}×`, title: "speed" });
    faster.onclick = () => {
      this.speed = { 1: 2, 2: 4, 4: 8, 8: 1 }[this.speed];
      faster.textContent = `${this.speed}×`;
      for (const { video } of this.cells) if (video) video.playbackRate = this.speed;
    };
    this.clock = make("small");
    root.append(make("div", { class: "bar" }, this.button, faster, this.clock, make("span", { class: "spring" }), this.count));
    const cells = make("div", { class: "grid" });
    this.cells = group.rollouts.map((rollout, i) => {
      const video = rollout.film ? film(rollout) : null, canvas = video ?? make("canvas");
      if (video) video.playbackRate = this.speed;
      const label = make("span", {}, `seed ${rollout.seed}`, make("em", { textContent: outcome(group, rollout) }));
      const cell = make("button", { class: `cell${rollout.success ? " success" : ""}`, onclick: () => open(group, i) }, canvas, label);
      cell.title = "Watch it, with the demonstrations behind each action";
      cells.append(cell);
      return { rollout, video, canvas, cell };
    });
    root.append(cells);
    this.visible = true;
    new IntersectionObserver(([entry]) => { this.visible = entry.isIntersecting; }).observe(cells);
    if (still) this.t = this.most;
    this.label();
  }

  label() {
    this.button.textContent = this.playing ? "❚❚ Pause" : "▶ Play";
    for (const { video } of this.cells) if (video) video[this.playing ? "play" : "pause"]();
  }

  toggle() {
    this.playing = !this.playing;
    if (this.playing && this.t >= this.most) this.restart();
    this.label();
  }

  restart() {
    this.t = 0;
    for (const { video } of this.cells) if (video) { video.currentTime = 0; video.play(); }
  }

  tick(now, redraw) {
    const passed = this.before === null ? 0 : Math.min(now - this.before, 100);
    this.before = now;
    if (this.playing && !document.hidden) this.t += passed / 1000 * this.group.rate * this.speed;
    if (this.playing && this.t > this.most + 2.5 * this.group.rate * this.speed) this.restart();
    if (!this.visible || (this.drawn === this.t && !redraw)) return;
    this.drawn = this.t;
    let done = 0, solved = 0;
    for (const { rollout, video, canvas, cell } of this.cells) {
      const t = Math.min(this.t, steps(rollout)), ended = this.t >= steps(rollout);
      cell.classList.toggle("done", ended);
      done += ended;
      solved += ended && rollout.success;
      if (video) continue;
      const [context, w, h] = sized(canvas), stage = this.group.stage;
      if (stage.kind === "none") { drawTrack(canvas, this.group, rollout, t, true); continue; }
      const view = fit(stage.extent, w, h), plan = planAt(rollout, t);
      if (stage.overlaid && plan && !ended) drawPlan(context, view, plan, this.group.n_execute, null, 0.6);
      drawBodies(context, view, stage, rollout.poses, t, true);
    }
    this.clock.textContent = `${(Math.min(this.t, this.most) / this.group.rate).toFixed(1)} s`;
    this.count.textContent = `${solved} of ${this.cells.length} solved${done < this.cells.length ? ", so far" : ""}`;
  }
}

// Score, familiarity and frames over time.
function drawTrack(canvas, group, rollout, t, small = false) {
  const [context, w, h] = sized(canvas), n = Math.max(1, steps(rollout));
  const x = (step) => step / n * w, bottom = small ? h - 2 : h - 12, y = (value) => bottom - 4 - value * (bottom - 12);
  const frames = [...new Set(rollout.plans.map(({ frame }) => frame))];
  rollout.plans.forEach((plan, i) => {
    const to = rollout.plans[i + 1]?.t ?? n, width = x(to) - x(plan.t) + 0.5;
    if (plan.level) {
      const alarm = plan.level === "out of range"; // a column of its own, since its bar is empty
      context.fillStyle = colors[LEVELS[plan.level]];
      context.globalAlpha = alarm ? 0.45 : 0.2;
      const top = y(alarm ? 1 : plan.farther);
      context.fillRect(x(plan.t), top, width, bottom - top);
      context.globalAlpha = 1;
    }
    if (small || frames.length < 2) return;
    context.fillStyle = colors[`c${frames.indexOf(plan.frame) % 6}`];
    context.fillRect(x(plan.t), h - 7, width, 7);
  });
  Object.assign(context, { strokeStyle: colors.ink, lineWidth: 2, lineJoin: "round" });
  context.beginPath();
  rollout.scores.forEach((score, i) => context[i ? "lineTo" : "moveTo"](x(i + 1), y(Math.max(0, Math.min(1, score)))));
  context.stroke();
  context.fillStyle = colors.policy;
  context.fillRect(x(t) - 1, 0, 2, h);
}

class Detail {
  constructor(root, close) {
    Object.assign(this, { t: 0, playing: false, speed: 1, before: null, marked: null, shown: null });
    this.title = make("b");
    this.stage = make("div", { class: "stage" });
    this.canvas = make("canvas");
    this.facts = make("div", { class: "facts" });
    this.heading = make("h3");
    this.behind = make("ul", { class: "behind" });
    this.alone = make("canvas", { class: "plan" });
    this.aloneLabel = make("h3");
    this.legend = make("p", { class: "legend" });
    this.track = make("canvas");
    this.slider = make("input", { type: "range", step: 1, min: 0, ariaLabel: "step of the rollout", autofocus: true });
    this.button = make("button", { onclick: () => this.play(!this.playing) });
    this.clock = make("output");
    const move = (by) => make("button", { textContent: by < 0 ? "←" : "→", title: `${by < 0 ? "previous" : "next"} rollout`, onclick: () => this.other(by) });
    const head = close ? [move(-1), move(1), make("button", { textContent: "Close", onclick: close })] : [];
    const side = make("div", { class: "side" }, this.facts, this.heading, this.behind, this.aloneLabel, this.alone, this.legend);
    const bar = make("div", { class: "bar" }, this.button, this.clock, make("span", { class: "spring" }), make("small", { class: "wide", textContent: "space: play · ← →: one step · drag to look around" }));
    this.key = make("p", { class: "legend" });
    this.time = make("div", { class: "time" }, make("div", { class: "track" }, this.track), this.slider, bar, this.key);
    root.append(make("div", { class: "detail" }, make("header", {}, this.title, ...head), this.stage, side, this.time));
    this.slider.oninput = () => { this.play(false); this.seek(Number(this.slider.value)); };
    const drag = (event) => {
      if (event.type === "pointermove" && !event.buttons) return;
      const box = this.track.getBoundingClientRect();
      this.play(false);
      this.seek(Math.round((event.clientX - box.left) / box.width * steps(this.rollout)));
    };
    this.track.addEventListener("pointerdown", drag);
    this.track.addEventListener("pointermove", drag);
  }

  open(group, index, t = null) {
    Object.assign(this, { group, index, rollout: group.rollouts[index], marked: null, shown: null });
    const { rollout } = this, n = steps(rollout);
    const told = n ? `${rollout.success ? "solved" : "not solved"}, score ${rollout.score.toFixed(3)}, ${n} steps` : "";
    this.title.replaceChildren([group.title, rollout.seed === null ? "" : `seed ${rollout.seed}`].filter(Boolean).join(", "), make("small", { textContent: told }));
    this.video = rollout.film ? film(rollout) : null;
    this.stage.replaceChildren(...(this.video ? [this.video] : []), this.canvas);
    this.slider.max = n;
    this.time.hidden = !n;
    this.alone.hidden = this.aloneLabel.hidden = group.stage.overlaid || !rollout.plans.length;
    this.aloneLabel.textContent = group.stage.planar ? "The plan: the first two coordinates of its positions" : "The plan: the first numbers of its actions";
    const swatch = (color, text) => make("span", {}, Object.assign(make("i"), { style: `background:${color}` }), text);
    const ghosts = rollout.plans.some((plan) => plan.ghosts.length);
    this.legend.replaceChildren(...(ghosts ? [swatch("var(--ghost)", "demonstrations, transferred to this scene")] : []),
      swatch("var(--ink)", "the plan"), swatch("var(--policy)", "its executed part"));
    const frames = [...new Set(rollout.plans.map(({ frame }) => frame))], familiar = rollout.plans.some((plan) => plan.level);
    this.key.replaceChildren(swatch("var(--ink)", "score"), ...(familiar ? Object.entries(LEVELS).map(([level, color]) => swatch(`var(--${color})`, level)) : []),
      ...(frames.length > 1 ? frames.map((frame, i) => swatch(`var(--c${i % 6})`, `frame: ${frame}`)) : []));
    this.seek(t ?? 0);
    this.play(!still && n > 0 && t === null); // at a moment that was asked for, it stays
  }

  other(by) {
    const n = this.group.rollouts.length;
    this.open(this.group, (this.index + by + n) % n);
  }

  play(on) {
    this.playing = on;
    this.before = null;
    if (on && this.t >= steps(this.rollout)) this.seek(0);
    this.button.textContent = on ? "❚❚ Pause" : "▶ Play";
  }

  seek(t) {
    this.t = Math.max(0, Math.min(t, steps(this.rollout)));
    this.dirty = true;
  }

  tick(now, redraw) {
    if (!this.rollout) return;
    const passed = this.before === null ? 0 : Math.min(now - this.before, 100);
    this.before = now;
    if (this.playing) {
      this.seek(this.t + passed / 1000 * this.group.rate * this.speed);
      if (this.t >= steps(this.rollout)) this.play(false);
    }
    if (this.dirty || redraw) this.draw();
    this.dirty = false;
  }

  draw() {
    const { group, rollout, t } = this, { stage } = group, plan = planAt(rollout, t);
    if (this.video && !this.video.seeking) this.video.currentTime = Math.min((t + 0.5) / group.rate, this.video.duration || 1e9);
    else if (this.video) this.video.onseeked = () => { this.dirty = true; };
    const [context, w, h] = sized(this.canvas);
    if (stage.extent) {
      const view = fit(stage.extent, w, h);
      if (!this.video) drawBodies(context, view, stage, rollout.poses, t, false);
      if (stage.overlaid && plan) drawPlan(context, view, plan, group.n_execute, this.marked);
    }
    if (!this.alone.hidden && plan) drawAlone(this.alone, stage, plan, group.n_execute, this.marked);
    if (steps(rollout)) drawTrack(this.track, group, rollout, t);
    this.slider.value = Math.round(t);
    const score = rollout.scores[Math.max(0, Math.ceil(t) - 1)] ?? 0;
    this.clock.textContent = `step ${Math.round(t)} of ${steps(rollout)}, ${(t / group.rate).toFixed(1)} s, score ${(t < 0.5 ? 0 : score).toFixed(2)}`;
    if (plan && plan !== this.shown) this.tell(plan);
    this.shown = plan;
  }

  tell(plan) {
    const { group } = this, fact = (name, value, more) => make("div", {}, make("small", { textContent: name }), make("b", { textContent: value, title: value }), ...more);
    const facts = [fact("frame", plan.frame || "none", [make("small", { textContent: plan.held ? `grasping ${plan.held}` : plan.frame === "world" ? "demonstrations as recorded" : "demonstrations moved with it" })])];
    if (plan.level) {
      const meter = make("div", { class: "meter" }, Object.assign(make("i"), { style: `width:${100 * plan.farther}%;background:var(--${LEVELS[plan.level]})` }));
      facts.push(fact("familiarity", plan.level, [meter, make("small", { textContent: `nearer than ${percent(plan.farther)} of left-out observations` })]));
    }
    const total = plan.behind.reduce((sum, { w }) => sum + w * w, 0), more = plan.behind.at(-1)?.more;
    const n = plan.behind.length + (more ? more[0] : 0), shared = n === 1 ? "makes this plan" : total > 0.9 ? "nearly all from one" : "share this plan";
    if (plan.network) facts.push(fact("network", percent(plan.network), [make("small", { textContent: "of this plan" })]));
    else if (plan.behind.length) facts.push(fact(n === 1 ? "demonstration" : "demonstrations", String(n), [make("small", { textContent: shared })]));
    this.facts.replaceChildren(...facts);
    this.heading.textContent = plan.behind.length ? `Behind this plan, made at step ${plan.t}` : "";
    this.behind.replaceChildren(...plan.behind.map(({ e, s, w }) => {
      const demo = group.demos[e], canvas = demo ? make("canvas") : null;
      const item = make("li", {}, ...(canvas ? [canvas] : []), Object.assign(make("u"), { style: `width:calc(${100 * w}% - 18px)` }),
        make("p", {}, make("b", { textContent: percent(w) }), make("small", { textContent: ` episode ${e}, step ${s}` })));
      item.onpointerenter = () => { this.marked = e; this.dirty = true; };
      item.onpointerleave = () => { this.marked = null; this.dirty = true; };
      if (canvas) requestAnimationFrame(() => drawDemo(canvas, group.stage, demo, s));
      return item;
    }));
    if (more) this.heading.textContent += `; ${more[0]} more have ${percent(more[1])} together`;
  }
}

let redraw = true;
const dialog = document.querySelector("dialog"), inline = document.querySelector(".inline"), views = [];
const detail = new Detail(dialog ?? inline, dialog ? () => dialog.close() : null);
function open(group, index, t = null) {
  if (dialog && !dialog.open) dialog.showModal();
  detail.open(group, index, t);
  redraw = true;
}
document.querySelectorAll("[data-group]").forEach((root) => views.push(new Grid(root, groups[root.dataset.group], open)));
document.querySelectorAll("[data-open]").forEach((button) => {
  const [group, seed, t] = button.dataset.open.split(",").map(Number);
  button.onclick = () => open(groups[group], groups[group].rollouts.findIndex((rollout) => rollout.seed === seed), t);
});
if (inline) open(groups[0], 0, groups[0].start);
dialog?.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
dialog?.addEventListener("close", () => detail.play(false));
addEventListener("keydown", (event) => {
  if (dialog && !dialog.open) return;
  if (event.key === " " && event.target.tagName !== "BUTTON") { detail.play(!detail.playing); event.preventDefault(); }
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by && event.target.tagName !== "INPUT") { detail.play(false); detail.seek(Math.round(detail.t) + by); event.preventDefault(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColors(); redraw = true; });
addEventListener("resize", () => { redraw = true; });
requestAnimationFrame(function tick(now) {
  const again = redraw;
  redraw = false;
  if (dialog?.open) detail.tick(now, again);
  else { for (const view of views) view.tick(now, again); if (inline) detail.tick(now, again); }
  requestAnimationFrame(tick);
});
Object.assign(window, { viewer: { groups, detail, views, open } });
