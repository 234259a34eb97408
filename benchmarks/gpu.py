"""Planning in batches on a GPU, compared with the same mathematics in JAX and torch, in one run: `make bench-gpu`.

Times are from features on the device to chunks on the device, including random numbers, unless a row says otherwise. A
peer that runs out of memory for a batch has no entry there.
"""

from __future__ import annotations

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

import exponentials
from closedform import ClosedFormPolicy, Demos, load_demos, load_policy, provenance
from closedform.demos.chosen_layouts import choose_layouts
from closedform.neural.policy import NeuralPolicy
from closedform.policies.backends.batch_planner import BatchPlanner, Numbers
from report import heading, number, table

BATCHES = (1, 4, 16, 64, 256, 1024, 4096, 16384)
PEER_BATCHES = (1, 64, 1024, 4096, 16384)  # JAX takes up to a minute to compile each
COMPARED = 4096
N_CHECKED = 64
N_HELD_OUT = 10
LATENCY_TARGET_MS = 1.0


def main() -> None:
    """Measures, and writes gpu.json and gpu.md."""
    parser = argparse.ArgumentParser(description="Runs all benchmarks on a GPU.")
    parser.add_argument("--demos", default="pusht", help="Push-T demonstrations: a path, or a dataset's name")
    parser.add_argument("--output", type=Path, default=Path("docs/results/bench"), help="folder")
    parser.add_argument("--commit", help="commit of the code, if the folder is not a checkout")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("expected a GPU that torch can use, found none; `make bench` measures what needs none")
    start = time.perf_counter()
    demos = load_demos(arguments.demos)
    results: dict[str, Any] = {
        "command": "make bench-gpu",
        "commit": arguments.commit or provenance.commit(),
        "date": provenance.now(),
        "machine": {**provenance.machine(), "gpu": torch.cuda.get_device_name()},
        "versions": {**provenance.versions(), "triton": __import__("triton").__version__},
        **measure(demos),
    }
    results["seconds"] = time.perf_counter() - start
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = report(results)
    (arguments.output / "gpu.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (arguments.output / "gpu.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {arguments.output}")


def measure(demos: Demos) -> dict[str, Any]:
    """All facts."""
    rows: dict[str, dict[str, float]] = {}
    observations = np.concatenate([episode.observations for episode in demos[-N_HELD_OUT:]])
    kept = demos[:-N_HELD_OUT]
    policies = {preset: ClosedFormPolicy(kept, preset) for preset in ("paper", "default")}
    policies["default, no layout"] = ClosedFormPolicy(choose_layouts(kept, "none").demos)
    planners = {preset: policy.batch_planner("cuda") for preset, policy in policies.items()}
    for preset, planner in planners.items():
        rows[f"closedform, preset {preset}"] = ours(planner, observations)
        rows[f"closedform, preset {preset}, from numpy to numpy"] = from_numpy(planner, observations)
    accuracy = {preset: errors(planner, observations) for preset, planner in planners.items()}
    for preset, planner in planners.items():
        accuracy[preset]["left_over"] = left_over(planner, observations)
    parts = parts_of_a_plan(planners["paper"], observations)
    counted = exponentials.count(planners["paper"], batch(observations, N_CHECKED))
    neural = neural_milliseconds(observations)
    planners.clear()
    torch.cuda.empty_cache()
    rows |= peers(policies["paper"], observations)
    rate = {name: {size: int(size) / (ms / 1e3) for size, ms in row.items()} for name, row in rows.items()}
    mine, jax = rows["closedform, preset paper"], rows.get("direct JAX, vmap and jit", {})
    bound = counted["rate"] / counted["needed"]
    here = str(COMPARED)
    return {
        "milliseconds": rows,
        "plans_per_second": rate,
        "one_plan_neural_ms": neural,
        "parts_ms": parts,
        "accuracy": accuracy,
        "exponentials": {
            **counted,
            "bound_plans_per_second": bound,
            "share_of_a_plan": rate["closedform, preset paper"][here] / bound,
            "share_of_the_bound_without_pruning": rate["closedform, preset paper"][here]
            * counted["all"]
            / counted["rate"],
            "share_of_the_fused_loop": COMPARED / (parts["diffusion"] / 1e3) / bound,
            "share_of_evaluated_in_the_loop": COMPARED
            / (parts["diffusion"] / 1e3)
            * counted["evaluated"]
            / counted["rate"],
        },
        "ratios": {
            "direct JAX / ours at B = 4096": jax[here] / mine[here] if here in jax else None,
            "direct JAX / ours at B = 1": jax["1"] / mine["1"] if "1" in jax else None,
        },
        "latency_ms": mine["1"],
    }


def batch(observations: np.ndarray, size: int) -> np.ndarray:
    """`size` observations, repeated if there are fewer."""
    return observations[np.arange(size) % len(observations)]


def milliseconds(call: Callable[[], object], n_calls: int = 20) -> float:
    """The median time of a call, waiting for the device."""
    call()
    times = []
    for _ in range(n_calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def ours(planner: BatchPlanner, observations: np.ndarray) -> dict[str, float]:
    """Milliseconds for each batch size, from features to chunks."""
    rng, found = torch.Generator("cuda").manual_seed(0), {}
    for size in tqdm(BATCHES, desc="closedform", leave=False):
        queries = planner.queries(planner.policy.windows(batch(observations, size)))
        found[str(size)] = milliseconds(lambda queries=queries: planner.chunks(queries, 1, rng))
    return found


def from_numpy(planner: BatchPlanner, observations: np.ndarray) -> dict[str, float]:
    """The same, from observations to actions in numpy arrays."""
    return {
        str(size): milliseconds(lambda size=size: planner.sample(batch(observations, size), seed=0), 10)
        for size in BATCHES
    }


def errors(planner: BatchPlanner, observations: np.ndarray) -> dict[str, Any]:
    """The largest differences from the reference's chunks in float64, given the same random numbers."""
    policy = planner.policy
    windows = policy.windows(batch(observations[:: max(1, len(observations) // N_CHECKED)], N_CHECKED))
    rng = np.random.default_rng(0)
    os.environ["CLOSEDFORM_DISABLE_KERNELS"] = "1"
    made = policy.planner.batch(windows, 1, rng)
    del os.environ["CLOSEDFORM_DISABLE_KERNELS"]
    numbers = Numbers.like_the_reference(planner, len(windows), np.random.default_rng(0))
    near, chunks = planner.plan(planner.queries(windows), numbers)
    difference = np.abs(chunks.double().cpu().numpy() - made.chunks).max((1, 2))
    same = (near.choices.cpu().numpy() == made.choices).all((1, 2))
    return {
        "plans": len(windows),
        "other_frame": int((~same).sum()),
        **{name: float(np.quantile(difference[same], q)) for name, q in (("p50", 0.5), ("p99", 0.99), ("worst", 1.0))},
    }


def left_over(planner: BatchPlanner, observations: np.ndarray) -> float:
    """The fraction of plans that the fused kernel's first attempt leaves over, since other neighbors matter."""
    queries = planner.queries(planner.policy.windows(batch(observations, COMPARED)))
    numbers = planner.draw(COMPARED, 1, torch.Generator("cuda").manual_seed(0))
    return float(planner._diffuse_fused(planner.neighbors(queries), numbers)[1].float().mean())


def parts_of_a_plan(planner: BatchPlanner, observations: np.ndarray) -> dict[str, float]:
    """Milliseconds of the parts of a plan at the compared batch size."""
    from closedform.policies.backends import torch_plan

    store, k = planner.device_store, planner._k
    queries = planner.queries(planner.policy.windows(batch(observations, COMPARED)))
    numbers = planner.draw(COMPARED, 1, torch.Generator("cuda").manual_seed(0))
    rows = torch_plan.nearest_rows(store, queries, k)
    near = planner.neighbors(queries)
    return {
        "search": milliseconds(lambda: torch_plan.nearest_rows(store, queries, k)),
        "metric": milliseconds(lambda: torch_plan.squared_distances(store, queries, rows)),
        "all before diffusion": milliseconds(lambda: planner.neighbors(queries)),
        "diffusion": milliseconds(lambda: planner._diffuse_fused(near, numbers)),
    }


def neural_milliseconds(observations: np.ndarray) -> dict[str, float]:
    """One plan of the network that comes with the package."""
    policy = load_policy("pusht-dit").to("cuda")
    assert isinstance(policy, NeuralPolicy)
    window, rng = batch(observations, 1)[0], np.random.default_rng(0)
    samplers = {"100 DDPM steps": ("ddpm", 100), "10 DDIM steps": ("ddim", 10)}
    found = {}
    for name, sampler in samplers.items():
        sampling = policy.with_sampling(*sampler)
        found[name] = milliseconds(lambda sampling=sampling: sampling.plan(window, seed=rng), 5)
    return found


def peers(policy: ClosedFormPolicy, observations: np.ndarray) -> dict[str, dict[str, float]]:
    """Milliseconds of the same written directly, for each batch size that fits."""
    from peers.batched_jax import BatchedJax
    from peers.batched_torch import BatchedTorch

    model, config = policy.model, policy.config
    features = model.index.rows()
    chunks = model.normalized_chunks(np.arange(len(model)), model.transfer.world)
    parameters = {
        "k": policy.n_neighbors(model),
        "h": model.kernel.h,
        "tau": config.tau,
        "n_perturbations": config.n_perturbations,
        "n_steps": config.n_diffusion_steps,
        "regularization": config.regularization,
    }
    queries = model.kernel.features(policy.windows(observations))
    made: dict[str, Any] = {
        "direct JAX, vmap and jit": BatchedJax(features, chunks, **parameters),
        "direct torch, torch.compile": BatchedTorch(features, chunks, "cuda", **parameters),
    }
    rows: dict[str, dict[str, float]] = {name: {} for name in made}
    for name, peer in made.items():
        for size in tqdm(PEER_BATCHES, desc=name, leave=False):
            prepared = peer.prepare(batch(queries, size))
            try:
                rows[name][str(size)] = milliseconds(lambda peer=peer, prepared=prepared: peer(prepared), 3)
            except (RuntimeError, ValueError) as error:  # how the two libraries report that memory ran out
                if "memory" not in str(error).lower():
                    raise
        torch.cuda.empty_cache()
    return rows


def report(results: dict[str, Any]) -> str:
    """The report."""
    counted, ratios, accuracy = results["exponentials"], results["ratios"], results["accuracy"]
    rows = [
        [name, *(number(row.get(str(size))) for size in BATCHES)] for name, row in results["plans_per_second"].items()
    ]
    jax = ratios["direct JAX / ours at B = 4096"]
    latency = results["latency_ms"]
    lines = [
        *heading("Benchmark on a GPU", results, f"{results['machine']['gpu']}, {results['machine']['processor']}"),
        "",
        "## Plans per second",
        "",
        "Push-T, S = 100, k = 2000, M = 32, one sample for each of B observations.",
        "",
        table(["", *(f"B = {size:,}" for size in BATCHES)], rows),
        "",
        f"- At B = 4,096 the direct JAX version takes {number(jax)} times as long; target: 20, {reached(jax, 20)}.",
        f"- One plan with a captured graph takes {number(latency)} ms; the target is 1 ms, "
        f"{'reached' if latency < LATENCY_TARGET_MS else '**missed**'}. The network in the package takes "
        + ", ".join(f"{number(ms)} ms with {name}" for name, ms in results["one_plan_neural_ms"].items())
        + ".",
        "- Against the reference in float64, in normalized actions: "
        + "; ".join(
            f"preset {preset} at most {row['worst']:.1e} over {row['plans']} plans"
            + (f", of which {row['other_frame']} chose another frame" if row["other_frame"] else "")
            + f", and {row['left_over']:.2%} are left over by the fused kernel"
            for preset, row in accuracy.items()
        )
        + ".",
        "",
        "## The bound",
        "",
        f"A plan needs {number(counted['needed'])} exponentials: those of (step, perturbation, neighbor) whose term "
        f"is within {number(counted['cut'])} nats of the largest, counted with all neighbors. The fused kernel "
        f"evaluates {number(counted['evaluated'])}. This GPU computes {counted['rate'] / 1e12:.2f} of them per "
        f"picosecond, which would allow {counted['bound_plans_per_second'] / 1e6:,.0f} million plans per second.",
        "",
        f"- A whole plan reaches {counted['share_of_a_plan']:.2%} of that, the diffusion alone "
        f"{counted['share_of_the_fused_loop']:.2%}; the target is 25%, "
        f"{reached(counted['share_of_the_fused_loop'], 0.25)}. Of the rate of exponentials, those that it evaluates "
        f"take {counted['share_of_evaluated_in_the_loop']:.1%}.",
        f"- Without pruning a plan needs {number(counted['all'])}, which would limit any version to "
        f"{number(counted['rate'] / counted['all'])} plans per second: a plan here reaches "
        f"{counted['share_of_the_bound_without_pruning']:.0%} of that.",
        "- Pruning leaves so few that they no longer dominate. The parts of a plan at B = 4,096: "
        + ", ".join(f"{name} {number(ms)} ms" for name, ms in results["parts_ms"].items())
        + ".",
    ]
    return "\n".join(lines) + "\n"


def reached(value: float | None, least: float) -> str:
    """Whether a target was reached."""
    return "not measured" if value is None else "reached" if value >= least else "**missed**"


if __name__ == "__main__":
    main()
