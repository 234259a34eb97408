"""Images of recorded Push-T episodes: rendered when they are read, and written with the demonstrations."""

from __future__ import annotations

import numpy as np
import pytest

from closedform.cli import main
from closedform.demos.load import load_demos
from closedform.errors import ConfigError, DataError
from closedform.geometry.layout import Layout

pytest.importorskip("gym_pusht")
pytest.importorskip("cv2")

from closedform.evaluation.pusht import PushT
from closedform.evaluation.pusht_images import rendered


def test_images_show_the_recorded_states():
    recorded = load_demos("pusht-embedded")[:2]
    demos = rendered(recorded)
    assert demos.observation_layout == Layout.parse("agent position 2")
    simulator = PushT()
    simulator.restore(recorded[1].observations[7])
    np.testing.assert_array_equal(demos[1].images["image"][7], simulator.camera_picture())
    noisy = rendered(recorded, "pusht_pixels:noise=8")[1].images["image"]
    np.testing.assert_array_equal(noisy[7], next(noisy.at([7])))  # the same whenever it is read
    clean = demos[1].images["image"][7].astype(float)
    assert 2 < (noisy[7] - clean)[clean < 200].std() < 9


def test_other_demonstrations_are_refused():
    recorded = load_demos("pusht-embedded")[:1]
    with pytest.raises(ConfigError, match="expected pusht_pixels or pusht_pixels:SETTINGS, found 'pusht'"):
        rendered(recorded, "pusht")
    with pytest.raises(DataError, match="expected states of Push-T, 5 numbers, found observations of 2"):
        rendered(rendered(recorded))


def test_the_command_writes_them(tmp_path, capsys):
    pytest.importorskip("zarr")
    target = tmp_path / "some.zarr"
    main(["convert", "pusht-embedded", str(target), "--episodes", "0:2", "--render", "pusht_pixels"])
    assert f"2 episodes, {load_demos(target).n_steps} steps" in capsys.readouterr().out
    expected = rendered(load_demos("pusht-embedded")[:2])
    np.testing.assert_array_equal(load_demos(target)[1].images["image"][3], expected[1].images["image"][3])
    main(["convert", str(target), str(tmp_path / "plain")])
    assert "images not written: image; zarr and lerobot keep them" in capsys.readouterr().out
