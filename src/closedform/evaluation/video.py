"""Videos of rollouts (extra `plots`)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import MissingExtraError
from closedform.evaluation.environment import can_render
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.rollout import Rollout, roll_out
from closedform.evaluation.study import Study
from closedform.files import write_file


def film(study: Study, episodes: Sequence[EpisodeResult], n: int, folder: Path) -> list[Path]:
    """Reruns n episodes, spread from the worst to the best, and writes an mp4 file of each."""
    paths = []
    for episode in spread(episodes, n):
        rollout, frames = filmed(study, episode.seed)
        paths.append(folder / f"seed-{episode.seed}-score-{rollout.score:.2f}.mp4")
        write_file(paths[-1], encode(frames, study.environments.spec.rate))
    return paths


def spread(episodes: Sequence[EpisodeResult], n: int) -> list[EpisodeResult]:
    """n episodes, evenly spread from the worst to the best; of equal scores, the longer episode is worse."""
    ranked = sorted(episodes, key=lambda episode: (episode.score, -episode.steps))
    places = np.linspace(0, len(ranked) - 1, min(n, len(ranked))).round().astype(int)
    return [ranked[place] for place in dict.fromkeys(places.tolist())]


def filmed(study: Study, seed: int) -> tuple[Rollout, list[np.ndarray]]:
    """An episode with an image of every step."""
    frames = []
    with study.environments.borrow() as (environment,):
        shown = can_render(environment, study.env)
        rollout = roll_out(environment, study.policy, seed, watch=lambda: frames.append(shown.render()))
    return rollout, frames


def require_av() -> Any:
    """The package that encodes videos."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", "plots", "making a video") from error
    return av


def encode(frames: Sequence[np.ndarray], rate: float) -> bytes:
    """An mp4 file (H.264, which every browser plays) of images (height, width, 3)."""
    av = require_av()
    buffer = BytesIO()
    height, width = (size - size % 2 for size in frames[0].shape[:2])  # H.264 halves the resolution of colors
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=round(rate), options={"crf": "23"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[:height, :width]), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return buffer.getvalue()
