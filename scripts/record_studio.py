"""Makes the pictures of docs/studio.md: the page, on a desk and on a phone, and a short recording.

A scripted person grabs the hand in Chromium, drives for a while and lets go; the policy solves the task. The scene's
clock is slowed down while it is filmed; the recording has the real speed.

    python scripts/record_studio.py            # some minutes; needs Chromium
"""

from __future__ import annotations

import argparse
import io
import itertools
import sys
from pathlib import Path
from typing import Any

from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from closedform.evaluation.pusht import PushT
from studies.studio.browser import Hands, opened, studio
from studies.studio.person import Person

TARGET = Path(__file__).parent.parent / "docs" / "images"
WIDTH, HEIGHT, COLORS = 720, 405, 128
ACCENTS = ("#f0722b", "#2f6fd6", "#23966a", "#d1404a", "#d99a1c", "#8a63c9", "#9db6de", "#bfe5d3", "#5d6b86")

BAND = 24  # pixels that an accent has in the image that the palette is made of
DRIVEN, LONGEST, LAST = 45, 220, 12  # steps: of the person, of a recording, and of its end
MOST = 2_000_000  # bytes


class Slow(PushT):
    """Push-T with time to take a picture of each step."""

    rate = 1.0


def film(hands: Hands, seed: int) -> tuple[list[tuple[int, Image.Image]], bool]:
    """Pictures of the page during a run, each with its step, and whether it was solved."""
    hands.start(seed, holding=True)
    person, frame, pictures = Person((0, seed), patient=False), hands.see(), list[tuple[int, Image.Image]]()
    while frame["step"] < LONGEST and not frame["outcome"]:
        hands.hold(person.point(frame) if frame["step"] < DRIVEN else None)
        frame = hands.see()
        pictures.append((frame["step"], picture(hands.page)))
    hands.hold(None)
    pictures.append((frame["step"] + 1, picture(hands.page)))
    return pictures, frame["outcome"] == "success"


def picture(page: Any) -> Image.Image:
    """The page as an image."""
    return Image.open(io.BytesIO(page.screenshot(type="jpeg", quality=92))).convert("RGB")


def save_recording(pictures: list[tuple[int, Image.Image]], path: Path) -> None:
    """Writes a GIF at the environment's real speed, all frames with the colors of one palette."""
    small = [image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS) for _, image in pictures]
    shown = [small[len(small) * k // 5] for k in range(5)]
    together = Image.new("RGB", (WIDTH, HEIGHT * len(shown) + BAND * len(ACCENTS)))
    for k, image in enumerate(shown):
        together.paste(image, (0, HEIGHT * k))
    for k, color in enumerate(ACCENTS):
        together.paste(color, (0, HEIGHT * len(shown) + BAND * k, WIDTH, HEIGHT * len(shown) + BAND * (k + 1)))
    palette = together.quantize(COLORS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in small]
    steps = [step for step, _ in pictures]
    spans = [max(1, after - step) for step, after in itertools.pairwise(steps)]
    durations = [round(1000 * span / PushT.rate) for span in (*spans, LAST)]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0)


def main() -> None:
    """Films runs until one is solved in time, and writes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=TARGET)
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    options = ("--env", "scripts.record_studio:Slow", "--demos", "pusht-embedded")
    with studio(*options) as (address, _), opened(address) as page:
        page.evaluate("rate => { studio.state.hello.rate = rate; studio.state.cards.clear(); }", PushT.rate)
        page.locator("[data-filter=all]").click()  # shows seconds as they would be
        page.evaluate("document.getElementById('clock').hidden = true")  # a slowed clock says nothing
        hands, pictures = Hands(page), list[tuple[int, Image.Image]]()
        for seed in range(arguments.seed, arguments.seed + 20):
            pictures, solved = film(hands, seed)
            print(f"seed {seed}: {'solved' if solved else 'not solved'} in {pictures[-1][0]} steps", flush=True)
            if solved:
                break
        after = next(image for step, image in pictures if step >= DRIVEN + 20)
        after.save(arguments.output / "studio.png", optimize=True)
        save_recording(pictures, arguments.output / "studio.gif")
        page.set_viewport_size({"width": 390, "height": 844})
        hands.pause(False)
        for _ in range(16):
            hands.see()
        picture(page).save(arguments.output / "studio_phone.png", optimize=True)
    for path in sorted(arguments.output.glob("studio*")):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
    size = (arguments.output / "studio.gif").stat().st_size
    if size > MOST:
        sys.exit(f"studio.gif: expected at most {MOST / 1e6:g} MB, found {size / 1e6:.2f}: choose another --seed")


if __name__ == "__main__":
    main()
