"""Random layouts, and demonstrations that fit them."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform import Demos, Layout

SPATIAL = ("quaternion", "quaternion_wxyz", "rotation6d", "rotation6d_rows", "axis_angle", "angle")


def draw_world(rng: np.random.Generator) -> dict[str, Any]:
    """Layouts as `Layout.parse` reads them, and the seed, size and units of demonstrations."""
    size = int(rng.choice([2, 3]))
    rotations = ("angle",) if size == 2 else SPATIAL
    observations, actions = [], []
    for body in ("hand", "block", "cup")[: int(rng.integers(1, 4))]:
        observations += [f"{body} position {size}"] if rng.random() < 0.9 else []
        observations += [f"{body} {rng.choice(rotations)}"] if rng.random() < 0.6 else []
        if body == "hand" or rng.random() < 0.2:
            actions += [f"{body} {rng.choice(['position', 'position', 'vector'])} {size}"]
            actions += [f"{body} {rng.choice(rotations)}"] if rng.random() < 0.4 else []
    for entries in (observations, actions):
        if rng.random() < 0.3 or not entries:
            entries.append(f"- {rng.choice(['other', 'binary'])} {rng.integers(1, 4)}")
        if entries is observations and rng.random() < 0.2:
            entries.append(f"- ignored {rng.integers(1, 4)}")
        rng.shuffle(entries)
    return {
        "observations": ", ".join(observations),
        "actions": ", ".join(actions),
        "seed": int(rng.integers(2**31)),
        "n_episodes": int(rng.integers(1, 7)),
        "n_steps": int(rng.choice([1, 8, 20, 20, 40])),
        "scale": float(rng.choice([1e-6, 1.0, 1.0, 1.0, 500.0, 1e8])),
        "repeated": bool(rng.random() < 0.1),
        "still": bool(rng.random() < 0.1),
    }


def make_demos(world: dict[str, Any]) -> Demos:
    """The demonstrations of a world: random walks, and actions near what is observed."""
    rng = np.random.default_rng(world["seed"])
    layouts = [Layout.parse(world[name]) for name in ("observations", "actions")]
    episodes = []
    for _ in range(world["n_episodes"]):
        episodes.append(tuple(make_numbers(rng, layout, world["n_steps"], world) for layout in layouts))
    if world["repeated"]:
        episodes = episodes[:1] * len(episodes)
    return Demos(episodes, layouts[0], layouts[1])


def make_numbers(rng: np.random.Generator, layout: Layout, n: int, world: dict[str, Any]) -> np.ndarray:
    """Random numbers (n, width) that fit the layout."""
    columns = []
    for entry in layout.entries:
        walk = np.cumsum(rng.normal(scale=0.0 if world["still"] else 0.1, size=(n, entry.size)), 0)
        walk += rng.normal(size=entry.size)
        match entry.kind:
            case "position" | "vector" | "other" | "ignored":
                walk *= world["scale"]
            case "binary":
                walk = np.where(walk > 0, 1.0, -1.0)
            case "quaternion" | "quaternion_wxyz":
                walk /= np.linalg.norm(walk, axis=1, keepdims=True)
            case "rotation6d" | "rotation6d_rows":
                first = walk[:, :3] / np.linalg.norm(walk[:, :3], axis=1, keepdims=True)
                second = walk[:, 3:] - np.sum(walk[:, 3:] * first, 1, keepdims=True) * first
                walk = np.concatenate([first, second / np.linalg.norm(second, axis=1, keepdims=True)], 1)
            case _:
                pass
        columns.append(walk)
    return np.concatenate(columns, 1)
