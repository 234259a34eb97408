"""The policy in LeRobot: fitted in one step, evaluated with the score of `closedform eval`, saved for both sides."""

import json
import sys

import numpy as np
import pytest
import torch
from conftest import DEVICE, run, train
from lerobot.configs import FeatureType, PolicyFeature, PreTrainedConfig
from lerobot.envs import make_env, make_env_pre_post_processors
from lerobot.envs.configs import PushtEnv
from lerobot.policies import make_policy, make_pre_post_processors
from lerobot.policies.rtc import ActionQueue, RTCConfig
from lerobot.rollout.inference.rtc import _normalize_prev_actions_length, supports_rtc_inference
from lerobot.scripts.lerobot_eval import rollout
from lerobot.utils.import_utils import register_third_party_plugins

from closedform import ClosedFormPolicy, Demos, KernelRegressionPolicy, Layout, NearestNeighborPolicy, load_policy
from closedform.errors import ConfigError, DataError, LoadError
from closedform.evaluation.rollout import roll_out
from closedform.policies.saving import CHECKED, verify
from closedform.weights.terms.action_prefix import ActionPrefix
from lerobot_policy_closedform import ClosedformConfig, ClosedformPolicy, modeling_closedform
from lerobot_policy_closedform.observations import pusht_poses
from lerobot_policy_closedform.pusht import LeRobotPushT

SMALL = {"n_action_steps": 6, "n_execute": 3, "n_diffusion_steps": 3, "n_perturbations": 4}
SEED = 50000


def batch_of(observations):
    return {"observation.state": torch.tensor(np.atleast_2d(observations)).float()}


def wrap(policy, **options):
    return ClosedformPolicy(ClosedformConfig(device="cpu", **options), policy=policy)


def test_lerobot_finds_the_plugin_by_its_name():
    register_third_party_plugins()
    assert PreTrainedConfig.get_choice_class("closedform") is ClosedformConfig


def test_training_is_one_step_and_gives_the_policy_of_closedform(trained, demos):
    ours = load_policy(trained)
    assert type(ours) is ClosedFormPolicy and len(ours.episodes) == len(demos)
    assert verify(trained) == CHECKED
    expected = ClosedFormPolicy(demos)
    assert ours.config == expected.config and ours.observation_layout == demos.observation_layout
    seen = demos[3].observations[::20]
    assert np.array_equal(ours.sample(seen, seed=1), expected.sample(seen, seed=1))
    assert {path.suffix for path in trained.iterdir()} == {".json", ".safetensors"}  # nothing that could run code


def test_both_programs_give_the_same_score_in_every_episode(weak, tmp_path):
    n = 4
    run(
        "lerobot-eval",
        *(f"--policy.path={weak}", "--policy.keypoints=pusht", f"--policy.seed={SEED}", DEVICE),
        *("--env.type=pusht", "--env.obs_type=environment_state_agent_pos", f"--seed={SEED}"),
        *("--env.visualization_width=96", "--env.visualization_height=96", f"--output_dir={tmp_path / 'theirs'}"),
        *("--eval.batch_size=2", "--eval.use_async_envs=false", f"--eval.n_episodes={n}"),
    )
    run(
        *("closedform", "eval", "--env", "lerobot_pusht", "--policy", weak, "--episodes", n, "--seed", SEED),
        *("--workers", 1, "--json", tmp_path / "ours.json"),
    )
    theirs = json.loads((tmp_path / "theirs" / "eval_info.json").read_text())["per_task"][0]["metrics"]
    ours = sorted(json.loads((tmp_path / "ours.json").read_text())["episodes"], key=lambda one: one["seed"])
    scores = [one["score"] for one in ours]
    assert [one["seed"] for one in ours] == list(range(SEED, SEED + n))
    assert len(set(scores)) > 1  # or equal scores would say little
    assert scores == pytest.approx(theirs["max_rewards"], abs=1e-6)
    assert [one["success"] for one in ours] == theirs["successes"]


def test_both_programs_take_the_same_actions(trained):
    config = PreTrainedConfig.from_pretrained(trained, cli_overrides=["--device=cpu", f"--seed={SEED}"])
    config.pretrained_path, config.keypoints = trained, "pusht"
    env_config = PushtEnv(obs_type="environment_state_agent_pos", episode_length=60)
    theirs = make_policy(config, env_cfg=env_config)
    (env,) = make_env(env_config, n_envs=2)["pusht"].values()
    steps = make_env_pre_post_processors(env_config, config), make_pre_post_processors(config, str(trained))
    done = rollout(env, theirs, *steps[0], *steps[1], seeds=[SEED, SEED + 1])
    for i in range(2):
        ours = roll_out(LeRobotPushT(), load_policy(trained), SEED + i)
        assert np.array_equal(done["action"][i].numpy(), ours.actions[:60].astype(np.float32))
    env.close()


def test_a_policy_of_closedform_loads_in_lerobot(tmp_path, demos):
    policy = ClosedFormPolicy(demos, **SMALL)
    policy.save(tmp_path / "policy")
    config = PreTrainedConfig.from_pretrained(tmp_path / "policy", cli_overrides=["--device=cpu", "--seed=3"])
    config.pretrained_path = tmp_path / "policy"
    env = PushtEnv(obs_type="environment_state_agent_pos")
    theirs = make_policy(config, env_cfg=env)
    before, after = make_pre_post_processors(config, pretrained_path=str(tmp_path / "policy"))
    agent = policy.agent(seed=3)
    for row in demos[2].observations[:8].astype(np.float32):
        action = after(theirs.select_action(before(batch_of(row))))
        assert np.array_equal(action[0].numpy(), agent.act(row).astype(np.float32))
    assert theirs.last_plans[0].episodes[0] in policy.episode_ids
    policy.save(tmp_path / "policy")  # replaces it, processors and all
    assert not list((tmp_path / "policy").glob("policy_*.json"))


def turned_demos():
    """Two hands with displacements for actions and a block that looks the same turned by quarters."""
    rng = np.random.default_rng(0)
    layout = Layout.of(("hand", "position", 2), ("block", "position", 2), ("block", "angle", 1, "turn4"))
    steps = [rng.normal(size=(30, 2)) for _ in range(4)]
    pairs = []
    for actions in steps:
        hand = np.cumsum(np.vstack([np.zeros(2), actions[:-1]]), axis=0)
        pairs.append((np.hstack([hand, np.tile([3.0, 1.0, 0.3], (30, 1))]), actions))
    return Demos(pairs, layout, Layout.of(("hand", "vector", 2)))


@pytest.mark.parametrize("kind", [ClosedFormPolicy, NearestNeighborPolicy, KernelRegressionPolicy])
@pytest.mark.parametrize("what", ["exact", "faiss", "symmetric"])
def test_a_policy_saved_by_lerobot_loads_in_closedform(tmp_path, demos, kind, what):
    demos = turned_demos() if what == "symmetric" else demos
    policy = kind(demos, n_action_steps=6, n_execute=3, index="faiss" if what == "faiss" else "exact")
    policy.add(demos[1])
    policy.remove(0)
    wrap(policy, seed=5, keypoints="pusht").save_pretrained(tmp_path / "policy")
    ours = load_policy(tmp_path / "policy")
    assert verify(tmp_path / "policy") == CHECKED and type(ours) is kind and ours.episode_ids == policy.episode_ids
    seen = demos[3].observations[::7]
    assert np.array_equal(ours.sample(seen, seed=1), policy.sample(seen, seed=1))
    again = ClosedformPolicy.from_pretrained(tmp_path / "policy")
    assert again.config.seed == 5 and again.config.keypoints == "pusht" and again.policy.config == policy.config
    assert np.array_equal(again.policy.sample(seen, seed=1), policy.sample(seen, seed=1))


def test_a_policy_of_an_older_version_is_refused(tmp_path, demos):
    ClosedFormPolicy(demos, **SMALL).save(tmp_path / "policy")
    content = json.loads((tmp_path / "policy" / "config.json").read_text())
    (tmp_path / "policy" / "config.json").write_text(json.dumps({**content, "format_version": 1}))
    with pytest.raises(LoadError, match="fit it again"):
        ClosedformPolicy.from_pretrained(tmp_path / "policy")


def test_a_policy_of_the_hub_is_downloaded_as_a_folder(tmp_path, demos, monkeypatch):
    wrap(ClosedFormPolicy(demos, **SMALL)).save_pretrained(tmp_path)
    asked = []
    monkeypatch.setattr(modeling_closedform, "snapshot_download", lambda *a, **k: asked.append((a, k)) or str(tmp_path))
    assert len(ClosedformPolicy.from_pretrained("someone/policy", revision="main").policy.episodes) == len(demos)
    assert asked == [(("someone/policy",), {"revision": "main"})]


def test_parameters_can_be_changed_on_loading(tmp_path, demos):
    ClosedFormPolicy(demos, **SMALL).save(tmp_path / "policy")
    config = PreTrainedConfig.from_pretrained(tmp_path / "policy", cli_overrides=['--parameters={"n_execute": 2}'])
    assert config.n_action_steps == 2 and config.chunk_size == SMALL["n_action_steps"]
    loaded = ClosedformPolicy.from_pretrained(tmp_path / "policy", config=config)
    assert loaded.policy.config == ClosedFormPolicy(demos, **{**SMALL, "n_execute": 2}).config


def test_training_again_adds_the_episodes_that_are_new(tmp_path, dataset, demos):
    some = train(dataset, tmp_path / "some", "--policy.episodes=[0, 2]", '--policy.parameters={"n_execute": 2}')
    policy = load_policy(some)
    assert len(policy.episodes) == 2 and policy.config.n_execute == 2
    assert np.array_equal(policy.episodes[1].actions, demos[2].actions)
    more = train(dataset, tmp_path / "more", f"--policy.path={some}", "--policy.episodes=[0, 1, 2]")
    assert len(load_policy(more).episodes) == 3


def test_episodes_chosen_where_policies_cannot_see_it_are_refused(dataset, demos, monkeypatch):
    class Meta:
        root = dataset

    monkeypatch.setattr(sys, "argv", ["lerobot-train", "--dataset.episodes=[0]"])
    with pytest.raises(ConfigError, match=r"--dataset.episodes: .*use --policy.episodes"):
        ClosedformPolicy(ClosedformConfig(device="cpu"), dataset_meta=Meta())


def test_the_loss_is_the_error_of_planned_chunks(demos):
    policy = wrap(ClosedFormPolicy(demos, n_obs_steps=2, **SMALL))
    windows = np.stack([demos[0].observations[i : i + 2] for i in (5, 9)])
    batch = {"observation.state": torch.from_numpy(windows), "action_is_pad": torch.zeros(2, 6, dtype=torch.bool)}
    planned = policy.policy.sample(windows, seed=0)[:, 0]
    batch["action"] = torch.from_numpy(planned.copy())
    assert policy.forward(batch)[0].item() < 1e-9
    batch["action"][0, 5] += 3.0
    loss, _ = policy.forward(batch)
    assert loss.item() == pytest.approx(9 / 12, rel=1e-5)
    batch["action_is_pad"][0, 5] = True
    assert policy.forward(batch)[0].item() < 1e-9
    loss.backward()
    assert policy.nothing.grad.item() == 0


def test_episodes_of_a_batch_plan_as_they_would_alone(demos):
    policy = ClosedFormPolicy(demos, **SMALL)
    together, seen = wrap(policy, seed=7), np.stack([demos[e].observations[:7] for e in range(3)])
    agents = [policy.agent(seed=10 + i) for i in range(3)]
    together.select_action(batch_of(seen[:, 0]))
    together.reset()
    for step in range(7):
        actions = together.select_action(batch_of(seen[:, step]))
        rows = seen[:, step].astype(np.float32).astype(float)
        alone = np.stack([agent.act(row) for agent, row in zip(agents, rows, strict=True)])
        assert np.allclose(actions.numpy(), alone, atol=1e-4)
    with pytest.raises(ConfigError, match="expected a batch of 3 episodes, found 1: call reset"):
        together.select_action(batch_of(seen[0, 0]))


@pytest.mark.parametrize("delay", [0, 2])
def test_a_chunk_continues_what_is_left_of_the_last_one(demos, delay):
    policy = ClosedFormPolicy(demos, **{**SMALL, "n_action_steps": 8})
    theirs, agent = wrap(policy, seed=2), policy.agent(seed=2)
    assert supports_rtc_inference(theirs)
    queue = ActionQueue(RTCConfig(enabled=True))
    first, second = (demos[0].observations[i].astype(np.float32) for i in (0, 3))
    chunk = theirs.predict_action_chunk(batch_of(first), inference_delay=0, prev_chunk_left_over=None)[0]
    assert np.array_equal(chunk.numpy(), agent.plan(first).actions.astype(np.float32))
    queue.merge(chunk, chunk, 0, 0)
    for _ in range(3):
        queue.get()
    index, left = queue.get_action_index(), queue.get_left_over()
    padded = _normalize_prev_actions_length(left, 10)  # as LeRobot does, with zeros
    assert len(left) == 5 and len(padded) == 10
    chunk = theirs.predict_action_chunk(batch_of(second), inference_delay=delay, prev_chunk_left_over=padded)[0]
    assert torch.equal(chunk[:delay], left[:delay])
    expected = agent.plan(second, ActionPrefix(left.numpy(), delay)).actions
    assert np.array_equal(chunk.numpy(), expected.astype(np.float32))
    for i in range(delay):
        assert torch.equal(queue.get(), chunk[i])
    queue.merge(chunk, chunk, delay, index)
    assert torch.equal(queue.get(), chunk[delay])
    assert not supports_rtc_inference(wrap(NearestNeighborPolicy(demos)))


@pytest.mark.parametrize("delay", [0, 3])
def test_nothing_left_over_is_a_plan_of_its_own(demos, delay):
    policy = ClosedFormPolicy(demos, **SMALL)
    one, other = wrap(policy), wrap(policy)
    seen = batch_of(demos[0].observations[0])
    nothing = _normalize_prev_actions_length(torch.zeros(0, 2), 10)  # a queue that ran empty
    found = one.predict_action_chunk(seen, inference_delay=delay, prev_chunk_left_over=nothing)
    assert torch.equal(found, other.predict_action_chunk(seen))


def test_poses_of_keypoints_are_those_of_the_simulator():
    from gym_pusht.envs.pusht import PushTEnv

    env = PushTEnv(obs_type="environment_state_agent_pos")
    for seed in range(20):
        seen, info = env.reset(seed=seed)
        pose = pusht_poses(np.concatenate([seen["agent_pos"], seen["environment_state"]]))
        x, y, angle = info["block_pose"]
        assert np.allclose(pose, [*info["pos_agent"], x, y, angle % (2 * np.pi)], atol=1e-9)


def test_what_does_not_fit_is_one_clear_line(demos, tmp_path):
    policy = ClosedFormPolicy(demos, **SMALL)
    keypoints = {"observation.state": torch.zeros(1, 2), "observation.environment_state": torch.zeros(1, 16)}
    with pytest.raises(DataError, match=r"of 5 numbers, found .*state of 2, .* of 16; --policy.keypoints=pusht"):
        wrap(policy).select_action(keypoints)
    with pytest.raises(DataError, match=r"expected the observations observation.state, found none"):
        wrap(policy).select_action({"task": ["push"]})
    with pytest.raises(ConfigError, match="expected demonstrations, found none: fit with lerobot-train"):
        ClosedformPolicy(ClosedformConfig(device="cpu"))
    with pytest.raises(ConfigError, match="has no parameter 'bandwith'"):
        ClosedformConfig(device="cpu", parameters={"bandwith": 0.1})
    with pytest.raises(ConfigError, match=r"policy: expected one of .*, found 'Other'"):
        ClosedformConfig(device="cpu", policy="Other")
    with pytest.raises(ConfigError, match="keypoints: expected pusht or null"):
        ClosedformConfig(device="cpu", keypoints="x")
    wide = {"action": PolicyFeature(FeatureType.ACTION, (14,))}
    with pytest.raises(ConfigError, match=r"expected actions of 2 numbers, found action of shape \(14,\)"):
        wrap(policy, output_features=wide)
    picture = {"observation.image": PolicyFeature(FeatureType.VISUAL, (3, 96, 96))}
    with pytest.raises(ConfigError, match="expected numbers to observe"):
        wrap(policy, input_features=picture)
