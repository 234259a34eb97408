"""The command `closedform`."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from tyro.conf import Positional

from closedform import ClosedFormError, __version__, load_policy


@dataclass(frozen=True)
class Info:
    """Says what a saved policy is made of."""

    folder: Positional[Path]
    """The folder that it was saved to."""
    json: bool = False
    """Print JSON, for machines."""

    def run(self) -> None:
        """Prints the policy's class, demonstrations, layouts and parameters."""
        policy = load_policy(self.folder)
        facts = {
            "policy": type(policy).__name__,
            "episodes": len(policy.episode_ids),
            "windows": policy.n_windows,
            "observation_layout": policy.observation_layout.to_json(),
            "action_layout": policy.action_layout.to_json(),
            "parameters": asdict(policy.config),
        }
        if self.json:
            print(json.dumps(facts, indent=2))
            return
        print(f"{facts['policy']} of {facts['episodes']} episodes, {facts['windows']} windows")
        for name in ("observation_layout", "action_layout"):
            entries = [f"{e['body'] or '-'} {e['kind']} ({e['size']})" for e in facts[name]]
            print(f"{name.replace('_', ' ')}: {', '.join(entries)}")
        for name, value in facts["parameters"].items():
            print(f"  {name:18} {value}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; a mistake is one line on the error stream and exit status 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"closedform {__version__}")
        return
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            chosen = tyro.extras.subcommand_cli_from_dict(
                {"info": Info},
                prog="closedform",
                description=f"Training-free imitation learning, version {__version__}.",
                args=arguments,
            )
    except SystemExit as stop:
        if stop.code:
            _fail(_one_line(errors.getvalue()))
        raise
    try:
        chosen.run()
    except ClosedFormError as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; there is nobody to tell


def _fail(message: str) -> None:
    print(f"closedform: {message}", file=sys.stderr)
    sys.exit(2)


def _one_line(box: str) -> str:
    """Flattens the box that tyro draws around a mistake; its title says less than its text."""
    parts = []
    for line in box.splitlines()[1:]:
        text = re.sub(r"[\u2500-\u257f]+", " ", line).strip()
        if not text and line.strip():
            parts.append(";")
        elif text:
            parts.append(text)
    joined = re.sub(r"\s+", " ", " ".join(parts))
    return re.sub(r"(\s*;\s*)+", "; ", joined).strip("; ")
