"""Videos of rollouts (extra `plots`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import MissingExtraError
from closedform.evaluation.environment import can_render
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.rollout import Rollout, roll_out
from closedform.evaluation.study import Study
from closedform.figures import embedded
from closedform.files import write_file

_SIZES = ((320, 24), (240, 28), (160, 32))  # pixels and quality of a film for a page, until it is small enough


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


def encode(
    frames: Iterable[np.ndarray],
    rate: float,
    *,
    largest: int | None = None,
    quality: int = 23,
    key_frames: int | None = None,
) -> bytes:
    """An mp4 file (H.264, which every browser plays).

    Args:
        frames: images (height, width, 3), one at least; taken one after the other.
        rate: images per second.
        largest: the most pixels of a side; larger images are made smaller.
        quality: libx264's constant rate factor, 0 to 51; a smaller one is clearer.
        key_frames: images from one key frame to the next; a film with many can be looked through quickly.
    """
    av = require_av()
    buffer = BytesIO()
    frames = iter(frames)
    first = next(frames)
    rows, columns = first.shape[:2]
    scale = min(1.0, (largest or max(rows, columns)) / max(rows, columns))
    height, width = (max(2, round(scale * size) // 2 * 2) for size in (rows, columns))  # H.264 halves colors
    options = {"crf": str(quality), **({"g": str(key_frames)} if key_frames else {})}
    with av.open(buffer, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=round(rate), options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in chain((first,), frames):
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            container.mux(stream.encode(picture.reformat(width=width, height=height, format="yuv420p")))
        container.mux(stream.encode())
    return buffer.getvalue()


def film_url(frames: Sequence[np.ndarray], rate: float, most_bytes: int) -> str:
    """A film for a page, as a data URL: as large and clear as fits in some bytes, and quick to look through."""
    content = b""
    for size, quality in _SIZES:
        content = encode(frames, rate, largest=size, quality=quality, key_frames=10)
        if len(content) * 4 / 3 <= most_bytes:  # base64 takes a third more
            break
    return embedded(content, "video/mp4")
