"""Notebooks: what objects look like there, and progress bars."""

import io
import sys
import types

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from closedform.evaluation.study import Study
from closedform.progress import progress_bar
from tests.conftest import planar_demos
from tests.evaluation.toy import reach_demos


def test_demonstrations_show_what_they_are():
    demos = Demos(planar_demos(np.random.default_rng(0)), Layout.of(("<hand>", "position", 2), (None, "other", 3)))
    assert repr(demos[0]) == f"Episode({len(demos[0])} steps of 5 observed and 2 commanded numbers)"
    shown = demos._repr_html_()
    assert "6, of 30 to 30 steps" in shown and "5 numbers: &lt;hand&gt; position 2, - other 3" in shown


def test_results_show_their_figures_and_not_their_episodes(tmp_path):
    ClosedFormPolicy(reach_demos()).save(tmp_path / "policy")
    study = Study.make("tests.evaluation.toy:Reach", None, str(tmp_path / "policy"), n_episodes=2)
    result = study.run(None, 1)
    assert (
        repr(result).startswith("EvaluationResult(") and str(result.score) in repr(result) and len(repr(result)) < 400
    )
    assert str(result.success) in result._repr_html_()


@pytest.mark.parametrize("notebook", [False, True])
def test_a_bar_is_shown_in_a_notebook_and_not_in_a_log(monkeypatch, notebook):
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    else:
        monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    stream = io.StringIO()  # no terminal
    with progress_bar(total=3, file=stream) as bar:
        bar.update(2)
        assert bar.disable is not notebook
    assert ("2/3" in stream.getvalue()) == notebook
