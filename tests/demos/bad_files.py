"""Small files that tests then damage, and the check that what is bad is refused in one line."""

import json

import h5py
import numpy as np
import pytest

from closedform import ClosedFormError, load_demos


def refused(source, message, **options):
    with pytest.raises(ClosedFormError, match=message) as caught:
        load_demos(source, **options)
    assert "\n" not in str(caught.value)


def robomimic(path):
    with h5py.File(path, "w") as file:
        file["data/demo_0/obs/object"] = np.ones((4, 2))
        file["data/demo_0/actions"] = np.ones((4, 1))
    return path


def lerobot(path, **facts):
    (path / "meta").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    features = {"observation.state": {"dtype": "float64", "shape": [1]}, "action": {"dtype": "float64", "shape": [1]}}
    info = {"codebase_version": "v3.0", "fps": 10, "features": features} | facts
    (path / "meta" / "info.json").write_text(json.dumps(info))
    return path
