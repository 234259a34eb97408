"""From images to actions: `perceive`, `fit`, and a loaded policy that takes dictionaries with images."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from closedform import ClosedFormPolicy, load_demos, load_policy, save_demos
from closedform.cli import main
from closedform.demos.demos import Demos
from closedform.errors import DataError, LoadError
from closedform.policies.saving import verify
from closedform.vision.bodies_perceiver import BodiesPerceiver
from closedform.vision.perceiver import perceive_demos
from tests.vision.image_demos import UNIT, image_demos, motions
from tests.vision.scenes import draw

pytest.importorskip("cv2")
LAYOUT = "hand position 2 -> hand position 2"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Demonstrations with images in a file, and what the command made of them."""
    pytest.importorskip("zarr")
    folder = tmp_path_factory.mktemp("stored")
    save_demos(image_demos(), folder / "some.zarr")
    main(["perceive", str(folder / "some.zarr"), "--with", "bodies", "-o", str(folder / "seen"), "--layout", LAYOUT])
    main(["fit", str(folder / "seen"), "-o", str(folder / "policy")])
    return folder


def observed(pose) -> dict[str, np.ndarray]:
    return {"image": draw(*pose), "agent_pos": UNIT * pose[1]}


def test_the_command_writes_numbers_and_how_they_were_made(stored):
    seen = load_demos(stored / "seen")
    assert [entry.body for entry in seen.observation_layout.entries] == ["hand", "seen", "seen"]
    assert seen.verified == len(seen) == 12
    assert (stored / "seen" / "perceiver" / "config.json").is_file()
    expected = perceive_demos(BodiesPerceiver.fit(image_demos(), ["image"]), image_demos())
    np.testing.assert_array_equal(seen.all_observations(), expected.all_observations())


def test_a_loaded_policy_takes_images(stored):
    policy = load_policy(stored / "policy")
    assert verify(stored / "policy") == "all checksums match"
    agent, again = policy.agent(seed=0), policy.agent(seed=0)
    assert policy.perceiver is not None
    perceiver = policy.perceiver.fresh()
    for pose in motions(1, 10, 3)[0]:
        seen = observed(pose)
        action = agent.act(seen)
        lerobot = {
            "observation.image": (seen["image"].transpose(2, 0, 1) / 255).astype(np.float32),
            "observation.state": seen["agent_pos"],
        }
        np.testing.assert_array_equal(again.act(perceiver.perceive(lerobot)), action)
    agent.reset(seed=0)
    again.reset(seed=0)
    first = observed(motions(1, 10, 3)[0][0])
    np.testing.assert_array_equal(agent.act(first), again.act(first))


def test_a_policy_plans_from_images(stored):
    policy = load_policy(stored / "policy")
    seen = observed(motions(1, 10, 3)[0][0])
    assert policy.perceiver is not None
    numbers = policy.perceiver.fresh().perceive(seen)
    np.testing.assert_array_equal(policy.plan(seen, seed=0).actions, policy.plan(numbers, seed=0).actions)


def test_a_policy_without_perceiver_says_so(stored):
    seen = load_demos(stored / "seen")
    plain = ClosedFormPolicy(Demos(seen.episodes, seen.observation_layout, seen.action_layout))
    with pytest.raises(DataError, match=r"of 5 numbers, or a dictionary with .* closedform perceive"):
        plain.agent(seed=0).act(observed(motions(1, 2, 3)[0][0]))


def test_saving_again_keeps_the_perceiver(stored, tmp_path):
    policy = load_policy(stored / "policy")
    policy.save(tmp_path / "copy")
    policy.save(tmp_path / "copy")  # replaces it
    assert load_policy(tmp_path / "copy").perceiver is not None


def test_damage_to_the_perceiver_is_noticed(stored, tmp_path):
    load_policy(stored / "policy").save(tmp_path / "copy")
    path = tmp_path / "copy" / "perceiver" / "perceiver.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 4
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"perceiver\.safetensors: checksum mismatch"):
        load_policy(tmp_path / "copy")


def test_others_are_perceived_in_the_same_way(stored, tmp_path, capsys):
    target = tmp_path / "again"
    options = ["--with", str(stored / "seen"), "--layout", LAYOUT, "--episodes", "3:5"]
    main(["perceive", str(stored / "some.zarr"), *options, "-o", str(target)])
    assert "2 episodes, 24 images of image" in capsys.readouterr().out
    seen = load_demos(stored / "seen")
    np.testing.assert_array_equal(load_demos(target)[0].observations, seen[3].observations)


def test_inspect_shows_what_was_found(stored, tmp_path):
    pytest.importorskip("matplotlib")
    main(["inspect", str(stored / "seen"), "--output", str(tmp_path / "report")])
    assert (tmp_path / "report" / "perception.png").stat().st_size > 20_000
    assert "Found in images" in (tmp_path / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--with", "eyes"], "--with: expected bodies, features, .* or a folder with a perceiver, found 'eyes'"),
        (["--with", "bodies", "--camera", "wrist"], "images of the camera 'wrist', found image"),
        (["--with", "bodies", "--encoder", "edges"], "--encoder: expected with another perceiver, found with bodies"),
        (["--with", "bodies", "--masks", "nowhere"], "nowhere: expected masks episode_000000/000012.png, found none"),
    ],
)
def test_requests_that_cannot_be_met(stored, tmp_path, capsys, options, message):
    with pytest.raises(SystemExit):
        main(["perceive", str(stored / "some.zarr"), "-o", str(tmp_path / "x"), "--layout", LAYOUT, *options])
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, error), error
    assert not (tmp_path / "x").exists()


def test_demonstrations_without_images(stored, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["perceive", str(stored / "seen"), "--with", "bodies", "-o", str(tmp_path / "x")])
    assert "expected demonstrations with images, found none; see --images" in capsys.readouterr().err


def test_info_names_the_perceiver(stored, capsys):
    main(["info", str(stored / "policy"), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["perceiver"] == {"kind": "bodies", "cameras": {"image": [72, 88, 3]}}
