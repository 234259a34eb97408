"""Makes the pictures of the README and of docs/studio.md: the page, on a desk and on a phone, and a short recording.

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
from typing import Any, cast

from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from closedform.evaluation.pusht import PushT
from studies.studio.browser import Hands, opened, studio
from studies.studio.person import Person

TARGET = Path(__file__).parent.parent / "docs" / "images"
WIDTH, COLORS = 720, 128
CLOSE = (0, 0, 912, 584)  # of the page: the scene, and the demonstrations behind the plan
BUTTONS = (840, 0, 912, 46)  # which that part would cut
ACCENTS = ("#f0722b", "#2f6fd6", "#23966a", "#d1404a", "#d99a1c", "#8a63c9", "#9db6de", "#bfe5d3", "#5d6b86")
GHOSTS = ("#b9a1df", "#d3c4eb", "#a99ad0", "#75669f")  # the demonstrations: over the table, the goal and the block

BAND = 24  # pixels that an accent has in the image that the palette is made of
DRIVEN, LONGEST, LAST = 60, 220, 20  # steps: of the person, of a recording, and of its end
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


def without_buttons(image: Image.Image) -> Image.Image:
    """The picture with empty ground where the first button would be cut."""
    emptied, ground = image.copy(), cast("tuple[int, int, int]", image.getpixel((BUTTONS[0], 4)))
    emptied.paste(ground, BUTTONS)
    return emptied


def save_recording(pictures: list[tuple[int, Image.Image]], path: Path, box: tuple[int, int, int, int]) -> None:
    """Writes a GIF of a part of the page at the environment's real speed, all frames with the colors of one palette."""
    height = round(WIDTH * (box[3] - box[1]) / (box[2] - box[0]))
    small = [image.resize((WIDTH, height), Image.Resampling.LANCZOS, box) for _, image in pictures]
    shown, accents = [small[len(small) * k // 5] for k in range(5)], (*ACCENTS, *GHOSTS)
    together = Image.new("RGB", (WIDTH, height * len(shown) + BAND * len(accents)))
    for k, image in enumerate(shown):
        together.paste(image, (0, height * k))
    for k, color in enumerate(accents):
        together.paste(color, (0, height * len(shown) + BAND * k, WIDTH, height * len(shown) + BAND * (k + 1)))
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
    parser.add_argument("--seed", type=int, default=18)
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
        save_recording(pictures, arguments.output / "studio.gif", (0, 0, *after.size))
        save_recording(
            [(step, without_buttons(image)) for step, image in pictures], arguments.output / "drive.gif", CLOSE
        )
        page.set_viewport_size({"width": 390, "height": 844})
        hands.pause(False)
        for _ in range(16):
            hands.see()
        picture(page).save(arguments.output / "studio_phone.png", optimize=True)
    for name in ("drive.gif", "studio.gif", "studio.png", "studio_phone.png"):
        size = (arguments.output / name).stat().st_size
        print(f"{name}: {size / 1e6:.2f} MB")
        if size > MOST:
            sys.exit(f"{name}: expected at most {MOST / 1e6:g} MB, found {size / 1e6:.2f}: choose another --seed")


if __name__ == "__main__":
    main()
