// The stage: draws the scene at the screen's rate between the steps of the session, and reads the mouse.

import { COLORS, dot, fit, line, shapePath, sized } from "./drawing.js";

export class Stage {
  constructor(canvas, onPointer) {
    this.canvas = canvas;
    this.onPointer = onPointer;
    this.show = { ghosts: true, fan: true, chunk: true };
    this.trail = [];
    this.pointer = null;
    this.playback = null;
    this.lift = 0;
    this.grips = false;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button || !event.isPrimary) return;
      canvas.setPointerCapture(event.pointerId);
      this.#move(event);
      event.preventDefault();
    });
    canvas.addEventListener("wheel", (event) => {
      if (!this.pictured) return;
      event.preventDefault();
      this.lift -= Math.max(-0.05, Math.min(0.05, event.deltaY / 2000));
      if (this.pointer) this.#tell();
    }, { passive: false });
    canvas.addEventListener("pointermove", (event) => { if (this.pointer && event.isPrimary) this.#move(event); });
    for (const name of ["pointerup", "pointercancel", "lostpointercapture"]) canvas.addEventListener(name, () => this.release());
    window.addEventListener("blur", () => this.release());
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.release(); });
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    requestAnimationFrame(() => this.#draw());
  }

  hello(hello) {
    this.hello_ = hello;
    this.pictured = hello.hand === null; // the scene cannot be drawn, and pictures of it arrive
    this.image = null;
    this.frame = this.before = null;
  }

  picture(address) {
    const image = new Image();
    image.onload = () => { this.image = image; };
    image.src = address;
  }

  grip() {
    this.grips = !this.grips;
    if (this.pointer) this.#tell();
  }

  // A new state; what is drawn moves there during the time of one step.
  advance(frame) {
    const last = this.frame;
    const jumped = !last || frame.seed !== last.seed || frame.step < last.step;
    if (jumped) this.trail = [];
    if (last && frame.step === last.step && !jumped) {
      this.frame = frame;
      return;
    }
    this.before = jumped ? frame.poses : this.#poses();
    this.frame = frame;
    this.arrived = performance.now();
    if (frame.driver !== "nobody" && !this.pictured) this.trail = [...this.trail.slice(-60), { at: frame.poses[this.hello_.hand], driver: frame.driver }];
  }

  play(take, poses, done) {
    this.playback = { take, poses, began: performance.now(), done, n: poses[this.hello_.hand].length };
  }

  stop() {
    const { done } = this.playback || {};
    this.playback = null;
    done?.();
  }

  release() {
    if (!this.pointer) return;
    this.pointer = null;
    this.onPointer(null);
  }

  #move(event) {
    if (!this.hello_) return;
    if (this.playback) this.stop();
    const box = this.canvas.getBoundingClientRect();
    this.pointer = this.#view().from(event.clientX - box.left, event.clientY - box.top);
    this.#tell();
  }

  #tell() {
    this.onPointer(this.pictured ? [...this.pointer, this.lift, this.grips ? 1 : 0] : this.pointer);
  }

  #view() {
    return fit(this.hello_.drawing.extent, this.canvas.clientWidth, this.canvas.clientHeight, 10);
  }

  #poses() {
    const share = Math.min(1, (performance.now() - this.arrived) / (1000 / this.hello_.rate));
    return between(this.before, this.frame.poses, share);
  }

  #draw() {
    requestAnimationFrame(() => this.#draw());
    if (this.#still()) return;
    const [context, w, h] = sized(this.canvas);
    context.clearRect(0, 0, w, h);
    if (!this.frame) return;
    const view = this.#view(), { drawing, hand } = this.hello_;
    if (this.pictured) return this.#pictured(context, view);
    this.#ground(context, view, drawing);
    let poses = this.#poses();
    if (this.playback) poses = this.#played(context, view);
    else this.#thoughts(context, view);
    for (const [body, shape] of Object.entries(drawing.bodies)) {
      if (body === hand) continue;
      context.save();
      Object.assign(context, { fillStyle: COLORS.block, shadowColor: "#1f2a4440", shadowBlur: 12, shadowOffsetY: 3 });
      context.fill(shapePath(view, shape, poses[body]));
      context.restore();
    }
    if (!this.playback) this.#plan(context, view);
    this.#hand(context, view, poses);
  }

  // Whether what is drawn is still right, which spares a paused page the work.
  #still() {
    const { frame, plan, map, image, pointer, playback, show, canvas } = this;
    const now = [frame, plan, map, image, pointer, show.ghosts, show.fan, show.chunk, canvas.clientWidth, canvas.clientHeight];
    const same = this.drawn?.every((value, i) => value === now[i]);
    this.drawn = now;
    return same && frame && !playback && performance.now() - this.arrived > 1500 / this.hello_.rate;
  }

  // The last picture, and while a person drives, where the mouse is and what the gripper should do.
  #pictured(context, view) {
    if (this.image) context.drawImage(this.image, view.x0, view.y0, view.w, view.h);
    if (!this.pointer) return;
    const [x, y] = view.to(...this.pointer), gap = this.frame.closed ? 5 : 12;
    Object.assign(context, { strokeStyle: COLORS.person, lineWidth: 3, lineCap: "round" });
    for (const side of [-1, 1]) {
      context.beginPath();
      context.moveTo(x + side * gap, y - 9);
      context.lineTo(x + side * gap, y + 9);
      context.stroke();
    }
  }

  #ground(context, view, drawing) {
    context.fillStyle = "#ffffff";
    context.fillRect(view.x0, view.y0, view.w, view.h);
    if (this.map) this.#map(context, view);
    context.strokeStyle = "#efece4";
    context.lineWidth = 1;
    context.beginPath();
    for (let i = 1; i < 8; i++) {
      context.moveTo(view.x0 + (i * view.w) / 8, view.y0);
      context.lineTo(view.x0 + (i * view.w) / 8, view.y0 + view.h);
      context.moveTo(view.x0, view.y0 + (i * view.h) / 8);
      context.lineTo(view.x0 + view.w, view.y0 + (i * view.h) / 8);
    }
    context.stroke();
    for (const [body, pose] of Object.entries(drawing.goals)) {
      context.fillStyle = COLORS.goal;
      context.fill(shapePath(view, drawing.bodies[body], pose));
    }
    context.strokeStyle = COLORS.line;
    context.strokeRect(view.x0, view.y0, view.w, view.h);
  }

  // Green is familiar, red raises an alarm.
  #map(context, view) {
    const { cells, shares } = this.map, w = view.w / cells, h = view.h / cells;
    shares.forEach((share, i) => {
      const level = Math.min(1, share);
      context.fillStyle = share > 1 ? "#f3c0bb" : `hsl(${150 - 110 * level} ${30 + 35 * level}% ${86 + 4 * level}%)`;
      context.fillRect(view.x0 + (i % cells) * w, view.y0 + Math.floor(i / cells) * h, w + 0.5, h + 0.5);
    });
  }

  #thoughts(context, view) {
    const plan = this.plan;
    if (!plan) return;
    const faint = this.frame.driver === "person" ? 0.55 : 1;
    if (this.show.ghosts) {
      for (const { path, weight } of plan.ghosts) {
        line(context, view, path, COLORS.ghost, 4 + 10 * Math.sqrt(weight), faint * (0.15 + 0.45 * weight));
      }
    }
    if (this.show.fan) for (const path of plan.fan) line(context, view, path, COLORS.fan, 1.5, faint * 0.75);
  }

  #plan(context, view) {
    const plan = this.plan;
    if (!plan || !this.show.chunk || this.frame.driver === "nobody") return;
    const color = plan.level === "out of range" ? COLORS.bad : COLORS.policy, shadow = this.frame.driver === "person";
    line(context, view, plan.chunk, color, 2.5, shadow ? 0.4 : 0.9, shadow ? [4, 6] : []);
    plan.chunk.forEach((point, i) => dot(context, view, point, i < plan.n_execute ? 3.6 : 2, color, shadow ? 0.4 : 0.95));
  }

  #hand(context, view, poses) {
    const { drawing, hand } = this.hello_, { driver, target } = this.frame, shape = drawing.bodies[hand];
    if (!this.playback) {
      for (let i = 1; i < this.trail.length; i++) {
        const { at, driver: who } = this.trail[i];
        line(context, view, [this.trail[i - 1].at, at], COLORS[who], 2.5, (0.4 * i) / this.trail.length);
      }
    }
    const color = this.playback ? COLORS.ghost : driver === "nobody" ? COLORS.soft : COLORS[driver];
    const goal = this.pointer && driver === "person" ? this.pointer : driver === "policy" ? target : null;
    if (goal && !this.playback) {
      line(context, view, [poses[hand], goal], color, 1.5, 0.5);
      const [x, y] = view.to(...goal);
      context.strokeStyle = color;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, 6, 0, 2 * Math.PI);
      context.stroke();
    }
    context.save();
    Object.assign(context, { fillStyle: color, shadowColor: "#1f2a4455", shadowBlur: 10, shadowOffsetY: 2 });
    const outline = shapePath(view, shape, poses[hand]);
    context.fill(outline);
    context.restore();
    context.strokeStyle = "#ffffff";
    context.lineWidth = 2.5;
    context.stroke(outline);
  }

  #played(context, view) {
    const { poses, began, n, take } = this.playback, at = ((performance.now() - began) / 1000) * this.hello_.rate * 1.5;
    const i = Math.min(n - 1, Math.floor(at)), next = Math.min(n - 1, i + 1);
    const pick = (k) => Object.fromEntries(Object.entries(poses).map(([body, all]) => [body, all[k]]));
    line(context, view, poses[this.hello_.hand], COLORS.ghost, 2, 0.35);
    line(context, view, poses[this.hello_.hand].slice(0, i + 1), COLORS.ghost, 3, 0.8);
    if (at > n + 6) queueMicrotask(() => { if (this.playback?.take === take) this.stop(); });
    return between(pick(i), pick(next), Math.min(1, at - i));
  }
}

function between(a, b, share) {
  return Object.fromEntries(Object.entries(b).map(([body, [x, y, angle]]) => {
    const [x0, y0, angle0] = a[body];
    const turn = Math.atan2(Math.sin(angle - angle0), Math.cos(angle - angle0));
    return [body, [x0 + share * (x - x0), y0 + share * (y - y0), angle0 + share * turn]];
  }));
}
