"""A newcomer's path: every block of commands and Python of the README and the tutorials, in order, from the wheel.

    make test-newcomer                              # Python 3.11, 3.12 and 3.13; those that are missing are named
    python scripts/newcomer.py --python 3.12        # needs nothing but Python
    python scripts/newcomer.py --extras studio data # each extra in an empty environment, and the commands it is for

For each version of Python, the wheel is installed into an empty environment as the pages say (`pip install '.[data]'`
or `pip install 'closedform[data]'`), and each page is followed in an empty folder with an empty cache. Comments before
a block: `<!-- not run: REASON -->` leaves it out, except for installing the package; `<!-- file: NAME -->` saves it;
and `<!-- needs: MODULE, MODULE -->` installs the extras that bring these modules (what cannot be installed fails),
or leaves out the rest of the page, where a module is in no extra.
Blocks of the language `text` are outputs, which the tests of the documentation compare.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
_MARKER = re.compile(r"<!--\s*(not run|file|needs):\s*(.*?)\s*-->")
_FENCE = re.compile(r"^(`{3,}|~{3,})\s*(\S*)")
_EXTRAS = {  # that bring what pages need
    "cv2": "pixels",
    "faiss": "ann",
    "gym_pusht": "pusht",
    "gymnasium": "gym",
    "h5py": "data",
    "matplotlib": "plots",
    "msgpack": "serve",
    "pyarrow": "data",
    "starlette": "studio",
    "torch": "neural",
    "websockets": "serve",
    "zarr": "data",
}
_PLAN = "from closedform import *; ClosedFormPolicy(load_demos('pusht-embedded'){}).plan([300, 420, 180, 300, 0.5])"
_RESET = "python -c \"from closedform.evaluation import make_environment; make_environment('{}').reset(0)\""
_SERVES = (  # until it says where
    "python -c \"from subprocess import *; server = Popen(['closedform', {}], stdout=PIPE, text=True); "
    "found = any('127.0.0.1' in line for line in server.stdout); server.terminate(); raise SystemExit(not found)\""
)
_PICTURES = """python -c "
import cv2, numpy as np
from pathlib import Path
from closedform import Demos, Episode, load_demos, save_demos
demos = load_demos('pusht-embedded')
short = [Episode(e.observations[:30], e.actions[:30]) for e in demos.episodes[:3]]
save_demos(Demos(short, demos.observation_layout, demos.action_layout), 'three.npz')
table = np.random.default_rng(0).integers(0, 60, (96, 96, 3), np.uint8)
for i, episode in enumerate(short):
    folder = Path('images/top') / f'episode_{i:06d}'
    folder.mkdir(parents=True)
    for t, seen in enumerate(episode.observations):
        picture = table.copy()
        cv2.circle(picture, tuple((seen[:2] * 96 / 512).astype(int).tolist()), 4, (255, 0, 0), -1)
        cv2.circle(picture, tuple((seen[2:4] * 96 / 512).astype(int).tolist()), 8, (0, 255, 0), -1)
        cv2.imwrite(str(folder / f'{t:06d}.png'), picture)
" """
ALONE = {  # an extra, and commands that it is for; those of ray, fleet, docs and dev have Makefile targets of their own
    "data": ("closedform inspect pusht-embedded", "closedform convert pusht-embedded demos.zarr"),
    "gym": (_RESET.format("gym:Pendulum-v1"),),
    "pusht": ("closedform eval --demos pusht-embedded --episodes 1",),
    "robosuite": ("closedform generate --task lift -o lift.hdf5 --episodes 1",),
    "metaworld": (_RESET.format("metaworld:reach-v3"),),
    "twin": ("closedform run --arm twin --demos pusht-embedded --steps 20",),
    "pixels": (_PICTURES, "closedform perceive three.npz --images images --with features -o seen.npz"),
    "lite0": (_PICTURES, "closedform perceive three.npz --images images --with features --encoder lite0 -o seen.npz"),
    "ur": ('python -c "from closedform.robot.drivers.ur import require_ur_rtde; require_ur_rtde()"',),
    "studio": (_SERVES.format("'studio', '--demos', 'pusht-embedded', '--no-open', '--port', '0'"),),
    "neural": ("closedform train pusht-embedded -o network --steps 1", "closedform info pusht-dit"),
    "ann": (f'python -c "{_PLAN.format(", index=" + repr("faiss"))}"',),
    "serve": (_SERVES.format("'serve', 'pusht-embedded', '--port', '0'"),),
    "plots": ("closedform inspect pusht-embedded -o page",),
}
_SHOWN = 25  # lines of what a block printed before it failed

# Executes the Python blocks of a page one after the other, as one program; says how each went on its first stdout.
_SESSION = """
import json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
names = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    try:
        exec(compile(block["code"], block["place"], "exec"), names)
        failed = None
    except BaseException:
        failed = traceback.format_exc()
    sys.stdout.flush()
    print(json.dumps(failed), file=answers, flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A fenced or indented block of code.

    Attributes:
        place: page and line.
        language: of a fenced block; "" for an indented one.
        code: what it says.
        markers: what comments before it say: `not run`, `file` and `needs`.
    """

    place: str
    language: str
    code: str
    markers: dict[str, str] = field(default_factory=dict)

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block; lines that end in a backslash go on."""
        lines = re.sub(r"\s*\\\n\s*", " ", self.code).splitlines()
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]

    @property
    def installs(self) -> list[str]:
        """The commands that install the package."""
        return [command for command in self.commands if command.split()[:2] == ["pip", "install"]]


def blocks_of(page: Path, name: str) -> list[Block]:
    """The code blocks of a page, in order; directives of Sphinx are none."""
    lines = page.read_text("utf-8").splitlines()
    blocks: list[Block] = []
    markers: dict[str, str] = {}
    blank, i = True, 0
    while i < len(lines):
        line, start = lines[i], i
        fence = _FENCE.match(line)
        i += 1
        if fence:
            while i < len(lines) and not lines[i].startswith(fence[1]):
                i += 1
            code, language = lines[start + 1 : i], fence[2]
            i += 1
        elif blank and line.startswith("    ") and line.strip():
            while i < len(lines) and (lines[i].startswith("    ") or not lines[i].strip()):
                i += 1
            code, language = [text[4:] for text in lines[start:i]], ""
        else:
            found = dict(_MARKER.findall(line))
            markers = markers | found if found or not line.strip() else {}
            blank = not line.strip() or bool(found)
            continue
        if not language.startswith("{"):
            blocks.append(Block(f"{name}:{start + 1}", language, "\n".join(code) + "\n", markers))
        markers, blank = {}, True
    return blocks


class Newcomer:
    """Somebody with one version of Python and a wheel, who follows pages.

    Args:
        python: the interpreter of an environment of their own.
        wheel: of the package.
        folder: to work in.
    """

    def __init__(self, python: Path, wheel: Path, folder: Path):
        self._python, self._wheel, self._folder = str(python), wheel, folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        self._variables = {
            **kept,
            "PATH": f"{python.parent}{os.pathsep}{kept['PATH']}",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_QUIET": "1",
        }

    def follow(self, page: Path) -> bool:
        """Does what a page says, and prints one line a block; returns whether all went well."""
        name = str(page.relative_to(ROOT))
        here = self._folder / name.replace("/", "_").removesuffix(".md")
        here.mkdir()
        session: subprocess.Popen[str] | None = None
        good = True
        try:
            for block in blocks_of(page, name):
                missing, problem = self._missing(block, here)
                if problem is not None:
                    good = False
                    print("    | " + "\n    | ".join(problem.strip().splitlines()[-_SHOWN:]), flush=True)
                if missing:
                    print(f"  {block.place}: the rest of the page is left out: needs {', '.join(missing)}", flush=True)
                    break
                if block.language == "python" and session is None:
                    session = self._session(here)
                start = time.perf_counter()
                said, problem = self._do(block, here, session)
                took = time.perf_counter() - start
                good &= problem is None
                if said or problem is not None:
                    print(f"  {block.place}: {said if problem is None else 'FAILED'} ({took:.1f} s)", flush=True)
                if problem is not None:
                    print("    | " + "\n    | ".join(problem.strip().splitlines()[-_SHOWN:]), flush=True)
        finally:
            if session is not None and session.stdin is not None:
                session.stdin.close()
                session.wait()
        return good

    def use_alone(self, extra: str) -> bool:
        """Runs the commands that an extra is for, in an otherwise empty environment; returns whether all went well."""
        here = self._folder / f"extra_{extra}"
        here.mkdir()
        if extra == "metaworld":  # which needs another MuJoCo
            self._variables["PIP_CONSTRAINT"] = str(ROOT / "constraints-wide.txt")
        for command in (f"pip install 'closedform[{extra}]'", *ALONE[extra]):
            problem = self._command(command, here)
            if problem is not None:
                print(f"  extra {extra}: FAILED: $ {command.strip().splitlines()[-1]}", flush=True)
                print("    | " + "\n    | ".join(problem.strip().splitlines()[-_SHOWN:]), flush=True)
                return False
        print(f"  extra {extra}: {len(ALONE[extra])} commands", flush=True)
        return True

    def _do(self, block: Block, here: Path, session: subprocess.Popen[str] | None) -> tuple[str, str | None]:
        """What to say about a block, and what went wrong."""
        reason = block.markers.get("not run")
        if reason is not None:
            problem = next(filter(None, (self._command(command, here) for command in block.installs)), None)
            return f"not run: {reason}" + ("; installed" if block.installs else ""), problem
        if "file" in block.markers:
            (here / block.markers["file"]).write_text(block.code)
            return f"saved {block.markers['file']}", None
        if block.language == "text":
            return "", None
        if block.language == "python":
            assert session is not None
            return "python", _executed(session, block)
        if block.language in ("", "sh", "bash", "shell", "console"):
            for command in block.commands:
                problem = self._command(command, here)
                if problem is not None:
                    return "", f"$ {command}\n{problem}"
            return f"{len(block.commands)} commands", None
        return "", f"expected python, sh or text, found {block.language!r}: mark it as <!-- not run: REASON -->"

    def _command(self, command: str, here: Path) -> str | None:
        """Runs a command; returns what it printed if it failed."""
        words = shlex.split(command, comments=True)
        if words[:2] == ["pip", "install"]:
            command = shlex.join(
                [self._python, "-m", "pip", "install", *(with_wheel(w, self._wheel) for w in words[2:])]
            )
        pipe = subprocess.PIPE
        done = subprocess.run(
            ["bash", "-c", command], cwd=here, env=self._variables, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )
        return None if done.returncode == 0 else f"{done.stdout}\nexit status {done.returncode}"

    def _session(self, here: Path) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [self._python, "-c", _SESSION]
        output = (here / "python.log").open("w")
        return subprocess.Popen(
            command, cwd=here, env=self._variables, stdin=pipe, stdout=pipe, stderr=output, text=True
        )

    def _needed(self, block: Block) -> list[str]:
        return [module for module in re.split(r"[,\s]+", block.markers.get("needs", "")) if module]

    def _missing(self, block: Block, here: Path) -> tuple[list[str], str | None]:
        """What a block needs that is not there after its extras were installed; and what pip said, if it refused."""
        for module in self._needed(block):
            if module in _EXTRAS and not self._has(module):
                problem = self._command(f"pip install 'closedform[{_EXTRAS[module]}]'", here)
                print(f"  extra {_EXTRAS[module]}: {'installed' if problem is None else 'FAILED'}", flush=True)
                if problem is None and not self._has(module):
                    problem = f"expected that the extra {_EXTRAS[module]} brings {module}; it does not"
                if problem is not None:
                    return [module], problem
        return [module for module in self._needed(block) if not self._has(module)], None

    def _has(self, module: str) -> bool:
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        return subprocess.run([self._python, "-c", look], env=self._variables).returncode == 0


def _executed(session: subprocess.Popen[str], block: Block) -> str | None:
    """Executes a block after those before it; returns its traceback if it failed."""
    assert session.stdin is not None and session.stdout is not None
    try:
        session.stdin.write(json.dumps({"code": block.code, "place": block.place}) + "\n")
        session.stdin.flush()
        answer = session.stdout.readline()
    except BrokenPipeError:
        answer = ""
    return json.loads(answer) if answer else "Python has ended"


def with_wheel(word: str, wheel: Path) -> str:
    """What to install: `.` and `closedform`, with or without extras, stand for the wheel."""
    found = re.fullmatch(r"(?:\.|closedform)(\[[^\]]*\])?", word)
    return f"{wheel}{found[1] or ''}" if found else word


def interpreter(version: str) -> str | None:
    """The command of a version of Python, if it is on this machine."""
    if shutil.which("pyenv"):
        found = subprocess.run(["pyenv", "prefix", version], capture_output=True, text=True)
        if found.returncode == 0:
            return f"{found.stdout.strip()}/bin/python"
    return shutil.which(f"python{version}")


def main() -> None:
    """Builds the wheel, and follows the pages with each version of Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--extras", nargs="*", choices=ALONE, help="instead of pages: these, or all, each alone")
    arguments = parser.parse_args()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
    bad = []
    with tempfile.TemporaryDirectory(prefix="newcomer-") as scratch:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", scratch, str(ROOT)]
        subprocess.run(command, check=True)
        (wheel,) = Path(scratch).glob("closedform-*.whl")
        for version in arguments.python:
            python = interpreter(version)
            if python is None:
                print(f"Python {version}: skipped, since it is not on this machine", flush=True)
                continue
            print(f"Python {version}: {wheel.name}", flush=True)
            folder = Path(scratch) / version
            folder.mkdir()

            def newcomer(python: str = python, folder: Path = folder) -> Newcomer:
                subprocess.run([python, "-m", "venv", "--clear", str(folder / "venv")], check=True)
                return Newcomer(folder / "venv" / "bin" / "python", wheel, folder)

            if arguments.extras is not None:
                chosen = arguments.extras or ALONE
                bad += [f"extra {extra} with Python {version}" for extra in chosen if not newcomer().use_alone(extra)]
            else:
                reader = newcomer()
                bad += [f"{page.relative_to(ROOT)} with Python {version}" for page in pages if not reader.follow(page)]
            shutil.rmtree(folder)
    if bad:
        sys.exit(f"failed: {', '.join(bad)}")


if __name__ == "__main__":
    main()
