"""Episodes come and go; policies are saved and loaded."""

import json
import threading

import numpy as np
import pytest

from closedform import (
    ClosedFormError,
    ClosedFormPolicy,
    Demos,
    KernelRegressionPolicy,
    NearestNeighborPolicy,
    load_policy,
)
from closedform.errors import LoadError, SaveError
from tests.conftest import planar_demos, random_demos

POLICIES = [ClosedFormPolicy, NearestNeighborPolicy, KernelRegressionPolicy]


@pytest.fixture
def demos():
    return planar_demos(np.random.default_rng(0))


def plans(policy, n=6):
    observations = np.random.default_rng(1).normal(scale=0.5, size=(n, 5))
    return [policy.plan(observation, seed=i) for i, observation in enumerate(observations)]


def assert_same_plans(a, b):
    for plan, other in zip(plans(a), plans(b), strict=True):
        np.testing.assert_array_equal(plan.actions, other.actions)
        np.testing.assert_array_equal(plan.weights, other.weights)
        np.testing.assert_array_equal(plan.episodes, other.episodes)
        assert (plan.frame, plan.distance) == (other.frame, other.distance)


def far_away(demos):
    """An episode that changes every range and scale."""
    return (demos[0].observations * 100, demos[0].actions * 100)


@pytest.mark.parametrize("index", ["exact", "faiss"])
@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize("far", [False, True])
def test_adding_and_removing_restores_the_same_plans(both_ways, demos, index, preset, far):
    parameters = {"index": index, "n_action_steps": 5, "n_neighbors": 60}
    policy, untouched = (ClosedFormPolicy(demos, preset, **parameters) for _ in range(2))
    episode_id = policy.add(far_away(demos) if far else demos[1])
    assert policy.episode_ids == [*range(6), episode_id]
    policy.remove(episode_id)
    assert_same_plans(policy, untouched)


def test_a_policy_that_grew_equals_one_built_at_once(both_ways, demos):
    grown, whole = ClosedFormPolicy(demos[:3]), ClosedFormPolicy(demos)
    for episode in demos[3:]:
        grown.add(episode)
    assert_same_plans(grown, whole)


def test_removing_from_the_middle_equals_never_having_been_there(both_ways, demos):
    policy = ClosedFormPolicy(demos)
    policy.remove(2)
    without = ClosedFormPolicy([*demos[:2], *demos[3:]] and Demos(
        [*demos[:2], *demos[3:]], demos.observation_layout, demos.action_layout
    ))  # fmt: skip
    for plan, other in zip(plans(policy), plans(without), strict=True):
        np.testing.assert_array_equal(plan.actions, other.actions)
        np.testing.assert_array_equal(plan.episodes, np.where(other.episodes >= 2, other.episodes + 1, other.episodes))


@pytest.mark.parametrize("index", ["exact", "faiss"])
def test_an_added_episode_is_in_the_next_plan(both_ways, demos, index):
    policy = NearestNeighborPolicy(demos, index=index, frames="world")
    observation = np.array([3.0, 3.0, -3.0, -3.0, 1.0])
    episode_id = policy.add((np.tile(observation, (20, 1)), np.full((20, 2), 7.0)))
    plan = policy.plan(observation)
    assert plan.episodes.tolist() == [episode_id]
    np.testing.assert_allclose(plan.actions, 7.0)


def test_bad_episodes_are_refused_and_change_nothing(demos):
    policy, untouched = ClosedFormPolicy(demos), ClosedFormPolicy(demos)
    with pytest.raises(ClosedFormError, match="episode 6: expected observations of 5 numbers, found 4"):
        policy.add((np.zeros((20, 4)), np.zeros((20, 2))))
    with pytest.raises(ClosedFormError, match="episode 6: actions must be finite, found nan at step 0"):
        policy.add((np.zeros((20, 5)), np.full((20, 2), np.nan)))
    with pytest.raises(ClosedFormError, match="unknown episode 17"):
        policy.remove(17)
    assert_same_plans(policy, untouched)
    with pytest.raises(ClosedFormError, match="expected at least 12 steps"):
        ClosedFormPolicy(demos, padding=False).add((np.zeros((3, 5)), np.zeros((3, 2))))
    alone = ClosedFormPolicy(demos[:1])
    with pytest.raises(ClosedFormError, match="episode 0 is the last one"):
        alone.remove(0)


def test_planning_goes_on_while_episodes_come_and_go(demos):
    policy = ClosedFormPolicy(demos, n_diffusion_steps=5)
    policy.warm_up()
    stop, failures = threading.Event(), []

    def plan_all_the_time():
        try:
            while not stop.is_set():
                assert np.isfinite(policy.plan(demos[0].observations[3]).actions).all()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=plan_all_the_time) for _ in range(3)]
    for thread in threads:
        thread.start()
    for i in range(60):
        episode_id = policy.add(far_away(demos) if i % 3 == 0 else demos[i % 6])
        policy.remove(episode_id)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("policy_class", POLICIES)
def test_a_saved_policy_plans_the_same_bits(both_ways, tmp_path, demos, policy_class):
    policy = policy_class(demos, n_action_steps=5)
    policy.add(demos[1])
    policy.remove(3)
    policy.save(tmp_path / "deep" / "policy")
    assert sorted(path.name for path in (tmp_path / "deep" / "policy").iterdir()) == [
        "config.json",
        "policy.safetensors",
    ]
    assert type(load_policy(tmp_path / "deep" / "policy")) is policy_class
    loaded = policy_class.load(tmp_path / "deep" / "policy")
    assert loaded.config == policy.config
    assert loaded.episode_ids == policy.episode_ids == [0, 1, 2, 4, 5, 6]
    assert_same_plans(policy, loaded)
    assert loaded.add(demos[0]) == policy.add(demos[0])  # ids go on from where they were
    assert_same_plans(policy, loaded)


def test_float32_demonstrations_stay_float32(tmp_path):
    demos = random_demos(np.random.default_rng(2), 2, 20, 5, 2)
    policy = ClosedFormPolicy([(e.observations.astype("f4"), e.actions.astype("f4")) for e in demos])
    policy.save(tmp_path / "policy")
    assert_same_plans(policy, load_policy(tmp_path / "policy"))
    assert (tmp_path / "policy" / "policy.safetensors").stat().st_size < 40 * 7 * 4 + 1000


def test_saving_again_replaces_and_leaves_nothing_behind(tmp_path, demos):
    policy = ClosedFormPolicy(demos)
    policy.save(tmp_path / "policy")
    policy.add(demos[0])
    policy.save(tmp_path / "policy")
    assert len(ClosedFormPolicy.load(tmp_path / "policy").episode_ids) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_crash_between_two_renames_loses_nothing(tmp_path, demos, monkeypatch):
    policy = ClosedFormPolicy(demos)
    policy.save(tmp_path / "policy")
    (tmp_path / "policy").rename(tmp_path / ".policy.old")  # where the old one is at that moment
    assert_same_plans(policy, load_policy(tmp_path / "policy"))
    policy.save(tmp_path / "policy")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_failed_save_leaves_the_old_policy(tmp_path, demos, monkeypatch):
    policy = ClosedFormPolicy(demos)
    policy.save(tmp_path / "policy")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("closedform.policies.saving.save_file", full)
    with pytest.raises(SaveError, match="policy: expected to write it, found No space left on device; nothing was"):
        policy.save(tmp_path / "policy")
    monkeypatch.undo()
    assert_same_plans(policy, load_policy(tmp_path / "policy"))
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_something_else_is_never_replaced(tmp_path, demos):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("years of work")
    for config in (None, "{}", '{"format": "closedform-policy", "format_version": 1}'):
        if config is not None:
            (tmp_path / "notes" / "config.json").write_text(config)
        with pytest.raises(ClosedFormError, match="found other files"):
            ClosedFormPolicy(demos).save(tmp_path / "notes")
    assert (tmp_path / "notes" / "thesis.tex").exists()


def test_a_removed_id_is_not_given_out_again(tmp_path, demos):
    policy = ClosedFormPolicy(demos)
    policy.remove(policy.add(demos[0]))
    policy.save(tmp_path / "policy")
    assert ClosedFormPolicy.load(tmp_path / "policy").add(demos[0]) == policy.add(demos[0]) == 7
    with pytest.raises(ClosedFormError, match="expected the id of an episode, a whole number"):
        policy.remove([0, 1])  # pyright: ignore[reportArgumentType]


def test_a_custom_feature_map_has_to_be_given_again(tmp_path, demos):
    def first_three(windows):
        return windows[:, :3]

    policy = ClosedFormPolicy(demos, feature_map=first_three)
    policy.save(tmp_path / "policy")
    with pytest.raises(ClosedFormError, match="pass it again as feature_map"):
        load_policy(tmp_path / "policy")
    assert_same_plans(policy, load_policy(tmp_path / "policy", feature_map=first_three))


def damage(folder, kind):
    config_path, arrays_path = folder / "config.json", folder / "policy.safetensors"
    config, arrays = json.loads(config_path.read_text()), arrays_path.read_bytes()
    match kind:
        case "truncated arrays":
            arrays_path.write_bytes(arrays[: len(arrays) // 2])
        case "flipped number":
            arrays_path.write_bytes(arrays[:-1000] + bytes([arrays[-1000] ^ 1]) + arrays[-999:])
        case "flipped header":
            arrays_path.write_bytes(bytes([255]) + arrays[1:])
        case "no arrays":
            arrays_path.unlink()
        case "truncated config":
            config_path.write_text(config_path.read_text()[:100])
        case "no config":
            config_path.unlink()
        case "newer":
            config_path.write_text(json.dumps({**config, "format_version": 4}))
        case "older":
            config_path.write_text(json.dumps({**config, "format_version": 1}))
        case "not ours":
            config_path.write_text(json.dumps({"type": "diffusion"}))
        case "wrong width":
            config_path.write_text(
                json.dumps({**config, "action_layout": [{"kind": "other", "size": 3, "body": None}]})
            )
        case "wrong count":
            config_path.write_text(json.dumps({**config, "n_episodes": 3}))
        case "unknown parameter":
            config_path.write_text(json.dumps({**config, "parameters": {"magic": 1}}))
        case "bad parameter":
            config_path.write_text(json.dumps({**config, "parameters": {**config["parameters"], "tau": -1.0}}))
        case "unknown policy":
            config_path.write_text(json.dumps({**config, "policy": "os.system"}))


DAMAGES = {
    "truncated arrays": "expected a complete safetensors file",
    "flipped number": "checksum mismatch: the files are damaged",
    "flipped header": "expected a complete safetensors file",
    "no arrays": r"expected policy\.safetensors beside config\.json",
    "truncated config": "expected JSON",
    "no config": r"found no config\.json",
    "newer": "expected format version 3, found 4; a newer version of closedform wrote it",
    "older": "expected format version 3, found 1; an older version of closedform wrote it: fit it again",
    "not ours": "not a policy saved by closedform",
    "wrong width": r"expected actions of shape \(180, 3\) according to config.json, found \(180, 2\)",
    "wrong count": r"expected lengths of shape \(3,\)",
    "unknown parameter": "has no parameter 'magic'",
    "bad parameter": "tau: expected 0 to 1e6, found -1.0",
    "unknown policy": "expected a configuration of format 3, KeyError",
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_folder_is_refused(tmp_path, demos, kind):
    ClosedFormPolicy(demos).save(tmp_path / "policy")
    damage(tmp_path / "policy", kind)
    with pytest.raises(ClosedFormError, match=DAMAGES[kind]):
        load_policy(tmp_path / "policy")


def test_a_policy_of_another_class_is_refused(tmp_path, demos):
    NearestNeighborPolicy(demos).save(tmp_path / "policy")
    with pytest.raises(ClosedFormError, match="expected a ClosedFormPolicy, found a NearestNeighborPolicy"):
        ClosedFormPolicy.load(tmp_path / "policy")
    assert isinstance(NearestNeighborPolicy.load(tmp_path / "policy"), NearestNeighborPolicy)


def test_a_policy_that_lacks_a_parameter_is_refused(tmp_path, demos):
    policy = ClosedFormPolicy(demos, "paper", n_action_steps=5, n_neighbors=60)
    policy.save(tmp_path / "policy")
    path = tmp_path / "policy" / "config.json"
    content = json.loads(path.read_text())
    for name in ("shrinkage", "relevance"):
        del content["parameters"][name]
    del content["config_crc32"]
    path.write_text(json.dumps(content))
    with pytest.raises(LoadError, match="expected every parameter, found none of shrinkage, relevance"):
        load_policy(tmp_path / "policy")
