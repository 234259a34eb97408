"""Examples run as their first lines say, and show what they promise."""

import re
import runpy
from pathlib import Path

from tests.conftest import slow_on_the_reference

EXAMPLES = Path(__file__).parent.parent / "examples"


@slow_on_the_reference
def test_guidance_turns_plans_the_right_way_round(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "03_wrong_way_round.py"))
    said = capsys.readouterr().out
    before, after = (
        [int(share) for share in re.findall(r"(\d+)%", line)] for line in said.splitlines() if "go clockwise" in line
    )
    assert len(before) == len(after) == 4
    assert sum(after) > sum(before) + 100  # percent, over four moments
    assert (tmp_path / "outputs" / "guided" / "config.json").exists()
