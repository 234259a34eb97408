"""Makes the pictures of docs/studio.md: the page, on a desk and on a phone, and a short recording.

A scripted person grabs the hand in Chromium, drives for a while and lets go; the policy solves the task. The scene's
clock is slowed down while it is filmed; the recording has the real speed.

    python scripts/record_studio.py            # some minutes; needs Chromium
"""

from __future__ import annotations

import argparse
import io
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
DRIVEN, LONGEST, LAST = 28, 150, 8  # steps: of the person, of a recording, and of its end
MOST = 2_000_000  # bytes


class Slow(PushT):
    """Push-T with time to take a picture of each step."""

    rate = 1.0


def film(hands: Hands, seed: int) -> tuple[list[Image.Image], bool]:
    """A picture of the page at each step of a run, and whether it was solved."""
    hands.start(seed, holding=True)
    person, frame, pictures = Person((0, seed), patient=False), hands.see(), list[Image.Image]()
    while len(pictures) < LONGEST and not frame["outcome"]:
        hands.hold(person.point(frame) if len(pictures) < DRIVEN else None)
        frame = hands.see()
        pictures.append(picture(hands.page))
    hands.hold(None)
    pictures += [picture(hands.page)] * LAST
    return pictures, frame["outcome"] == "success"


def picture(page: Any) -> Image.Image:
    """The page as an image."""
    return Image.open(io.BytesIO(page.screenshot(type="jpeg", quality=92))).convert("RGB")


def save_recording(pictures: list[Image.Image], path: Path) -> None:
    """Writes a GIF at the environment's real speed, all frames with the colors of one palette."""
    small = [image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS) for image in pictures]
    shown = [small[len(small) * k // 5] for k in range(5)]
    together = Image.new("RGB", (WIDTH, HEIGHT * len(shown)))
    for k, image in enumerate(shown):
        together.paste(image, (0, HEIGHT * k))
    palette = together.quantize(COLORS)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in small]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=round(1000 / PushT.rate), loop=0)


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
        hands, pictures = Hands(page), list[Image.Image]()
        for seed in range(arguments.seed, arguments.seed + 20):
            pictures, solved = film(hands, seed)
            print(f"seed {seed}: {'solved' if solved else 'not solved'} in {len(pictures) - LAST} steps", flush=True)
            if solved:
                break
        pictures[DRIVEN + 12].save(arguments.output / "studio.png", optimize=True)
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
