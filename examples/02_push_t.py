"""Push-T: from demonstrations to a policy and a report on its rollouts. Nothing is trained or downloaded.

    python examples/02_push_t.py --output outputs/demo

A policy is built in milliseconds from the package's own 200 demonstrations, and evaluated from 20 start states of
Diffusion Policy's evaluation. On the page that it writes all 20 rollouts move at once; a click on one shows the
demonstrations behind each of its actions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from closedform import ClosedFormPolicy, load_demos
from closedform.analysis import write_report
from closedform.evaluation import Study


def main() -> None:
    """Builds the policy, runs it and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/demo"), help="folder for the report")
    parser.add_argument("--episodes", type=int, default=20)
    arguments = parser.parse_args()

    demos = load_demos("pusht-embedded")
    start = time.perf_counter()
    policy = ClosedFormPolicy(demos)
    print(f"{demos} -> {policy} in {1e3 * (time.perf_counter() - start):.0f} ms, without training")

    study = Study.of_policy("pusht", policy, "default", "pusht-embedded", n_episodes=arguments.episodes)
    results = study.run(name="Push-T")
    print(
        f"{len(results.episodes)} episodes from start states that are not in the demonstrations, which are successful"
    )
    print("episodes of this package's own policy:")
    for name, value in (("score", results.score), ("success", results.success)):
        print(f"  {name:8} {value.mean:.3f}  [{value.low:.3f}, {value.high:.3f}]")
    print(f"  plan     {results.latency_p50_ms:.2f} ms (p50), {results.latency_p99_ms:.2f} ms (p99)")

    page = arguments.output / "report.html"
    print("rerunning the episodes for the page ...")
    write_report({"default": results}, page, title="Push-T from 200 demonstrations, without training")
    print(f"open {page} in a browser; a click on a rollout shows the demonstrations behind each action")


if __name__ == "__main__":
    main()
