// Draws the scene of a rollout at any time, in the colors of the page.

const ratio = () => window.devicePixelRatio || 1;
const colors = {};
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "line", "stage", "policy", "good", "bad", "warn", "ghost", "block", "goal",
    "c0", "c1", "c2", "c3", "c4", "c5"]) colors[name] = style.getPropertyValue(`--${name}`).trim();
}
readColors();

// A canvas whose pixels are those of the screen, cleared.
function sized(canvas) {
  const { clientWidth: w, clientHeight: h } = canvas, [wide, high] = [Math.round(w * ratio()), Math.round(h * ratio())];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
  context.clearRect(0, 0, w, h);
  return [context, w, h];
}

// From the units of the scene to pixels: all of the extent (left, right, bottom, top), centered.
function fit([left, right, bottom, top], w, h, margin = 0) {
  const scale = Math.min((w - 2 * margin) / Math.abs(right - left), (h - 2 * margin) / Math.abs(top - bottom));
  const x0 = (w - scale * Math.abs(right - left)) / 2, y0 = (h - scale * Math.abs(top - bottom)) / 2;
  return { scale, to: ([x, y]) => [x0 + scale * (right > left ? x - left : left - x),
    y0 + scale * (bottom > top ? y - top : top - y)] };
}

function shape(view, { polygons, radius }, [x, y, angle]) {
  const path = new Path2D(), c = Math.cos(angle), s = Math.sin(angle);
  if (radius) path.arc(...view.to([x, y]), radius * view.scale, 0, 2 * Math.PI);
  for (const polygon of polygons) {
    polygon.forEach(([a, b], i) => path[i ? "lineTo" : "moveTo"](...view.to([x + c * a - s * b, y + s * a + c * b])));
    path.closePath();
  }
  return path;
}

function line(context, view, points, color, width, alpha = 1) {
  if (points.length < 2) return;
  Object.assign(context, { strokeStyle: color, lineWidth: width, globalAlpha: alpha, lineJoin: "round", lineCap: "round" });
  context.beginPath();
  points.forEach((point, i) => context[i ? "lineTo" : "moveTo"](...view.to(point)));
  context.stroke();
  context.globalAlpha = 1;
}

function dot(context, view, point, radius, color) {
  context.fillStyle = color;
  context.beginPath();
  context.arc(...view.to(point), radius, 0, 2 * Math.PI);
  context.fill();
}

// The pose of a body between two steps; an angle turns the short way.
function between(poses, t) {
  const i = Math.min(Math.floor(t), poses.length - 1), j = Math.min(i + 1, poses.length - 1), share = t - i;
  return poses[i].map((value, k) => {
    let change = poses[j][k] - value;
    if (k === 2) change -= 2 * Math.PI * Math.round(change / (2 * Math.PI));
    return value + share * change;
  });
}

function drawBodies(context, view, stage, poses, t, small) {
  if (stage.kind === "shapes") {
    for (const [body, pose] of Object.entries(stage.goals)) {
      context.fillStyle = colors.goal;
      context.fill(shape(view, stage.bodies[body], pose));
    }
    for (const [body, form] of Object.entries(stage.bodies)) {
      context.fillStyle = body === stage.hand ? colors.policy : colors.block;
      context.fill(shape(view, form, between(poses[body], t)));
    }
  } else if (stage.kind === "points") {
    Object.entries(poses).forEach(([body, path], i) => {
      const color = colors[`c${i % 6}`], at = between(path, t);
      line(context, view, [...path.slice(Math.max(0, Math.ceil(t) - 20), Math.ceil(t)), at], color, 1.5, 0.4);
      dot(context, view, at, small ? 4 : 7, color);
      if (!small) {
        context.font = "12px system-ui";
        context.fillText(body, view.to(at)[0] + 10, view.to(at)[1] + 4);
      }
    });
  }
}

// The plan over the scene, or alone: the demonstrations behind it, then what it is, then what of it is executed.
function drawPlan(context, view, plan, nExecute, marked, thick = 1) {
  for (const { path, w, e } of [...plan.ghosts].reverse()) {
    const alpha = marked === null ? 0.25 + 0.55 * w : e === marked ? 1 : 0.12;
    line(context, view, path, colors.ghost, thick * (2 + 4 * w), alpha);
  }
  line(context, view, plan.chunk, colors.ink, 1.5 * thick, 0.85);
  line(context, view, plan.chunk.slice(0, nExecute), colors.policy, 3.5 * thick);
  dot(context, view, plan.chunk[Math.min(nExecute, plan.chunk.length) - 1], 4.5 * thick, colors.policy);
}

function around(paths) {
  const xs = paths.flat().map(([x]) => x), ys = paths.flat().map(([, y]) => y);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const half = Math.max(right - left, high - low, 1e-9) * 0.6;
  return [(left + right) / 2 - half, (left + right) / 2 + half, (low + high) / 2 - half, (low + high) / 2 + half];
}

// The plan by itself, for scenes that it cannot be drawn into.
function drawAlone(canvas, stage, plan, nExecute, marked) {
  const [context, w, h] = sized(canvas);
  if (stage.planar) return drawPlan(context, fit(around([plan.chunk, ...plan.ghosts.map(({ path }) => path)]), w, h, 12), plan, nExecute, marked);
  const series = (path, k) => path.map((row, i) => [i, row[k]]);
  plan.chunk[0].forEach((_, k) => {
    const ghosts = plan.ghosts.map((ghost) => ({ ...ghost, path: series(ghost.path, k) })), chunk = series(plan.chunk, k);
    const n = plan.chunk[0].length, high = h / n, ys = [chunk, ...ghosts.map(({ path }) => path)].flat().map(([, y]) => y);
    const low = Math.min(...ys), span = Math.max(...ys) - low || 1, wide = Math.max(1, chunk.length - 1);
    const view = { to: ([x, y]) => [12 + (w - 24) * x / wide, k * high + high - 6 - (high - 12) * (y - low) / span] };
    drawPlan(context, view, { chunk, ghosts }, nExecute, marked, 0.6);
  });
}

// A demonstration as it was recorded, at one of its steps, with the path that its actions took from there.
function drawDemo(canvas, stage, demo, step) {
  const [context, w, h] = sized(canvas), view = fit(stage.extent, w, h);
  drawBodies(context, view, stage, demo.poses, Math.min(step, demo.path.length - 1), true);
  if (!stage.planar) return;
  line(context, view, demo.path, colors.soft, 1, 0.35);
  line(context, view, demo.path.slice(step, step + 24), colors.ghost, 2.5);
}
