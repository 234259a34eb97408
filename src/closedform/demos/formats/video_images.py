"""Images in video files, decoded with PyAV one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import LoadError, MissingExtraError

_FAR = 2.0  # seconds ahead that are not worth decoding
_LARGEST_SIDE = 1 << 14  # pixels


@dataclass(frozen=True)
class VideoImages:
    """The images of a stretch of a video.

    Attributes:
        path: of the file.
        begin: the time of the first one, in seconds.
        fps: images a second.
    """

    path: Path
    begin: float
    fps: float

    def __str__(self) -> str:
        return str(self.path)

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        """Images by their numbers, which increase."""
        av = require_av("reading a video")
        try:
            with av.open(str(self.path)) as container:
                yield from self._decoded(container, numbers)
        except LoadError:
            raise
        except FileNotFoundError as error:
            raise LoadError(f"{self.path}: expected a video, found nothing there; was it downloaded?") from error
        except (OSError, ValueError, IndexError, EOFError) as error:  # PyAV's own are of these kinds
            reason = getattr(error, "strerror", None) or error
            raise LoadError(f"{self.path}: expected a complete video, found {reason}") from error

    def _decoded(self, container: Any, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        if not container.streams.video:
            raise LoadError(f"{self.path}: expected a video, found no images in it")
        stream = container.streams.video[0]
        if max(stream.width, stream.height) > _LARGEST_SIDE:
            raise LoadError(f"{self.path}: expected images of at most {_LARGEST_SIDE} pixels a side, found larger ones")
        stream.codec_context.options = {"err_detect": "explode"}
        half, at, frames = 0.5 / self.fps, -np.inf, container.decode(stream)
        for number in numbers:
            wanted = self.begin + number / self.fps
            if wanted - at > _FAR:
                container.seek(int(max(wanted - half, 0.0) / stream.time_base), stream=stream)
                frames = container.decode(stream)
            frame = next((one for one in frames if one.time is not None and one.time > wanted - half), None)
            if frame is None or frame.time > wanted + half:
                found = "its end" if frame is None else f"the next one at {frame.time:.3f} s"
                raise LoadError(f"{self.path}: expected an image at {wanted:.3f} s, found {found}; is it complete?")
            if frame.is_corrupt:
                raise LoadError(f"{self.path}: expected a complete video, found a damaged image at {wanted:.3f} s")
            at = frame.time
            yield frame.to_ndarray(format="rgb24")


def encode_video(images: Iterable[np.ndarray], fps: float, path: Path) -> int:
    """Writes a video (H.264, every second image a keyframe, as LeRobot's) and returns the number of images."""
    av, count, stream = require_av("writing a video"), 0, None
    rate = Fraction(fps).limit_denominator(1 << 16)
    with av.open(str(path), "w") as container:
        for image in images:
            if stream is None:
                stream = container.add_stream("libx264", rate=rate, options={"crf": "10", "g": "2", "bf": "0"})
                stream.height, stream.width = image.shape[:2]
                stream.pix_fmt = "yuv444p"
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
            frame.pts = count
            frame.time_base = 1 / rate
            container.mux(stream.encode(frame))
            count += 1
        if stream is not None:
            container.mux(stream.encode())
    return count


def require_av(purpose: str) -> Any:
    """PyAV, which decodes and encodes videos."""
    try:
        import av
    except ImportError as error:
        raise MissingExtraError("av", "pixels", purpose) from error
    return av
