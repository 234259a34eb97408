"""Push-T from pictures of 96x96 pixels. Nothing is trained or downloaded.

    python examples/06_pixels.py --output outputs/demo-pixels

What the T looks like is learned in seconds from pictures of the demonstrations. The page shows, for a few start states,
where it was found in each picture, and which demonstrations the policy followed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from closedform import ClosedFormPolicy, Demos, load_demos
from closedform.analysis.html_page import page_of
from closedform.evaluation.pusht_film import film_seen
from closedform.evaluation.pusht_pixels import PushTPixels
from closedform.evaluation.video import encode
from closedform.figures import embedded
from closedform.files import write_file


def main() -> None:
    """Learns what the scene looks like, perceives demonstrations, runs the policy and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("outputs/demo-pixels"), help="folder for the page")
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--demonstrations", type=int, default=100, help="of 200; each takes half a second to perceive")
    arguments = parser.parse_args()

    start = time.perf_counter()
    scene = PushTPixels()
    print(f"{len(scene.view.bodies.bodies)} bodies learned in {time.perf_counter() - start:.1f} s, without training")

    recorded = load_demos("pusht-embedded").episodes[: arguments.demonstrations]
    episodes = [
        scene.perceived(one, number) for number, one in enumerate(tqdm(recorded, desc="perceiving", leave=False))
    ]
    demos = Demos(episodes, scene.observation_layout, scene.action_layout, scene.rate)
    policy = ClosedFormPolicy(demos)

    parts, scores = [], []
    for seed in tqdm(range(100_000, 100_000 + arguments.episodes), desc="running", leave=False):
        rollout, images = film_seen(scene, policy, demos, seed)
        scores.append(rollout.score)
        video = embedded(encode(images, scene.rate), "video/mp4")
        parts.append(
            f"<h2>Start {seed}: score {rollout.score:.2f} after {len(rollout.actions) / scene.rate:.0f} s</h2>"
            f'<video controls autoplay muted loop style="width:100%" src="{video}"></video>'
        )
    print(f"{len(scores)} start states that are not in the demonstrations: score {np.mean(scores):.3f}")

    page = arguments.output / "pixels.html"
    write_file(page, page_of("Push-T from pictures", _ABOVE + "".join(parts)))
    print(f"open {page} in a browser")


_ABOVE = """<h1>Push-T from pictures of 96x96 pixels</h1>
<p>Left: the picture, with the outlines of T (red) and agent (blue) where they were found. Right: the demonstrations
that the current plan follows and how they went on (green), carried over to the present, and the plan (black).</p>"""


if __name__ == "__main__":
    main()
