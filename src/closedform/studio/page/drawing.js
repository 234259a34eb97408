// Draws bodies and paths of a planar scene; used for the stage and for thumbnails.

export const COLORS = {
  ink: "#1f2a44", soft: "#6c7488", line: "#e2ddd1", person: "#f0722b", policy: "#2f6fd6", good: "#23966a",
  bad: "#d1404a", warn: "#d99a1c", ghost: "#8a63c9", fan: "#9db6de", block: "#5d6b86", goal: "#bfe5d3",
};
export const LEVELS = { familiar: "good", rare: "warn", "out of range": "bad" }; // of familiarity, in COLORS

// The transformation from scene units to pixels that shows all of the extent, centered.
export function fit(extent, width, height, margin) {
  const [left, right, bottom, top] = extent;
  const w = Math.abs(right - left), h = Math.abs(top - bottom);
  const scale = Math.min((width - 2 * margin) / w, (height - 2 * margin) / h);
  const x0 = (width - scale * w) / 2, y0 = (height - scale * h) / 2;
  const down = bottom > top, flip = right < left; // images of y downward have their bottom at the larger number
  return {
    scale, x0, y0, w: scale * w, h: scale * h, down,
    to: (x, y) => [x0 + scale * (flip ? left - x : x - left), y0 + scale * (down ? y - top : top - y)],
    from: (px, py) => {
      const x = (px - x0) / scale, y = (py - y0) / scale;
      return [flip ? left - x : left + x, down ? top + y : top - y];
    },
  };
}

export function shapePath(view, shape, [x, y, angle]) {
  const path = new Path2D(), c = Math.cos(angle), s = Math.sin(angle);
  if (shape.radius) {
    const [px, py] = view.to(x, y);
    path.arc(px, py, shape.radius * view.scale, 0, 2 * Math.PI);
  }
  for (const polygon of shape.polygons) {
    polygon.forEach(([a, b], i) => {
      const [px, py] = view.to(x + c * a - s * b, y + s * a + c * b);
      if (i) path.lineTo(px, py); else path.moveTo(px, py);
    });
    path.closePath();
  }
  return path;
}

export function line(context, view, points, color, width, alpha = 1, dash = []) {
  if (points.length < 2) return;
  context.save();
  Object.assign(context, { strokeStyle: color, lineWidth: width, globalAlpha: alpha, lineJoin: "round", lineCap: "round" });
  context.setLineDash(dash);
  context.beginPath();
  points.forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](...view.to(x, y)));
  context.stroke();
  context.restore();
}

export function dot(context, view, [x, y], radius, color, alpha = 1) {
  context.save();
  context.globalAlpha = alpha;
  context.fillStyle = color;
  context.beginPath();
  context.arc(...view.to(x, y), radius, 0, 2 * Math.PI);
  context.fill();
  context.restore();
}

// A canvas whose pixels are those of the screen.
export function sized(canvas) {
  const ratio = window.devicePixelRatio || 1, { clientWidth: w, clientHeight: h } = canvas;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return [context, w, h];
}

// A whole episode in one picture; a step is marked if it is given.
export function thumbnail(canvas, hello, take, step = null) {
  const [context, w, h] = sized(canvas);
  context.clearRect(0, 0, w, h);
  if (hello.hand === null) return pictured(context, w, h, take.picture);
  const view = fit(hello.drawing.extent, w, h, 2);
  for (const [body, pose] of Object.entries(hello.drawing.goals)) {
    context.fillStyle = COLORS.goal;
    context.fill(shapePath(view, hello.drawing.bodies[body], pose));
  }
  for (const [body, shape] of Object.entries(hello.drawing.bodies)) {
    if (body === hello.hand) continue;
    context.strokeStyle = COLORS.soft;
    context.globalAlpha = 0.5;
    context.stroke(shapePath(view, shape, take.first[body]));
    context.globalAlpha = 0.85;
    context.fillStyle = COLORS.block;
    context.fill(shapePath(view, shape, take.last[body]));
    context.globalAlpha = 1;
  }
  line(context, view, take.path, take.kind === "recorded" ? COLORS.ink : COLORS.person, 1.4, 0.9);
  dot(context, view, take.path[0], 2, COLORS.ink);
  if (step !== null) {
    const at = take.path[Math.round((Math.min(1, step / Math.max(1, take.steps - 1))) * (take.path.length - 1))];
    dot(context, view, at, Math.max(3, h / 30), COLORS.ghost);
  }
}

const images = new Map(); // by address, so that one that was shown before is there at once

function pictured(context, w, h, address) {
  if (!address) return;
  if (!images.has(address)) images.set(address, Object.assign(new Image(), { src: address }));
  const image = images.get(address);
  const show = () => {
    const scale = Math.max(w / image.width, h / image.height), [wide, high] = [scale * image.width, scale * image.height];
    context.drawImage(image, (w - wide) / 2, (h - high) / 2, wide, high);
  };
  if (image.complete) show(); else image.addEventListener("load", show, { once: true });
}
