// The timeline of a run: how far the task is accomplished, how familiar the scene was, and who drove.

import { COLORS, LEVELS, sized } from "./drawing.js";

export class Timeline {
  constructor(canvas) {
    this.canvas = canvas;
    this.steps = [];
  }

  add(frame, plan) {
    const last = this.steps.at(-1);
    if (last && (frame.seed !== last.seed || frame.step < last.step)) this.steps = [];
    else if (last && frame.step === last.step) return;
    if (!frame.step) return this.draw(frame);
    const { seed, step, score, driver } = frame, share = plan?.share_farther ?? null, level = plan?.level;
    this.steps.push({ seed, step, score, driver: driver === "nobody" ? last?.driver ?? "person" : driver, share, level });
    if (this.steps.length > 4000) this.steps.shift();
    this.draw(frame);
  }

  draw() {
    const [context, w, h] = sized(this.canvas), n = Math.max(this.most || 1, this.steps.at(-1)?.step || 1);
    context.clearRect(0, 0, w, h);
    if (h < 20) return;
    const x = (step) => (step / n) * w, top = 4, bottom = h - 9, y = (value) => bottom - value * (bottom - top);
    context.strokeStyle = "#efece4";
    for (const value of [0, 0.5, 1]) {
      context.beginPath();
      context.moveTo(0, y(value));
      context.lineTo(w, y(value));
      context.stroke();
    }
    for (const { step, driver, share, level } of this.steps) {
      context.fillStyle = COLORS[driver];
      context.fillRect(x(step - 1), h - 4, x(1) + 0.6, 4);
      if (share === null) continue;
      const alarm = level === "out of range"; // a column of its own, since its bar is empty
      context.fillStyle = COLORS[LEVELS[level]];
      context.globalAlpha = alarm ? 0.5 : 0.28;
      context.fillRect(x(step - 1), y(alarm ? 1 : share), x(1) + 0.4, bottom - y(alarm ? 1 : share));
      context.globalAlpha = 1;
    }
    Object.assign(context, { strokeStyle: COLORS.ink, lineWidth: 2, lineJoin: "round" });
    context.beginPath();
    this.steps.forEach(({ step, score }, i) => context[i ? "lineTo" : "moveTo"](x(step), y(score)));
    context.stroke();
  }
}
