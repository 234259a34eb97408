"""Edited policies: exact at both ends, saved and loaded, and demonstrations take over where the network is lost."""

import json
import shutil

import numpy as np
import pytest
import torch

from closedform import ClosedForm, Demos, Layout, load_policy, save_demos
from closedform.cli import main
from closedform.editing.augmented_policy import AugmentedPolicy
from closedform.editing.edited_policy import demonstrations_for
from closedform.editing.guided_policy import GuidedPolicy
from closedform.editing.pruned import Pruned
from closedform.errors import ClosedFormError, ConfigError, DataError
from closedform.neural.config import NeuralConfig
from closedform.neural.data import training_data
from closedform.neural.dit import DiT
from closedform.neural.policy import NeuralPolicy
from closedform.policies.randomness import Streams
from closedform.weights.state import State
from tests.evaluation.toy import reach_demos

CONFIG = NeuralConfig(
    width=32,
    n_heads=2,
    n_blocks=1,
    observation_hidden=16,
    observation_embedding=16,
    sampler="ddim",
    n_sampling_steps=10,
)


def shifted(demos: Demos, by: float) -> Demos:
    episodes = [(e.observations + by, e.actions + by) for e in demos]
    return Demos(episodes, demos.observation_layout, demos.action_layout)


@pytest.fixture(scope="module")
def neural():
    """A network that was never trained, so that it says nothing sensible."""
    data = training_data(reach_demos(), CONFIG)
    torch.manual_seed(0)
    network = DiT(CONFIG, data.features.shape[1], 2)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return NeuralPolicy.of(CONFIG, torch.nn.utils.parameters_to_vector(network.parameters()), data)


@pytest.fixture(scope="module")
def everything(neural):
    return demonstrations_for(neural, reach_demos())


def layouts(demos: Demos) -> tuple[Layout, Layout]:
    return demos.observation_layout, demos.action_layout


def streams(n):
    return Streams([np.random.default_rng(seed) for seed in range(n)])


def same(first, second, observation=(0.1, 0.2, 0.5, 0.5)):
    plans = [policy.plan(np.array(observation), seed=3).actions for policy in (first, second)]
    return np.array_equal(*plans)


def test_no_guidance_is_the_neural_policy_to_the_last_bit(neural, everything):
    half, left_out = demonstrations_for(neural, reach_demos()[10:]), reach_demos()[0].observations[0]
    assert same(GuidedPolicy(neural, half, everything, w=0.0), neural, left_out)
    with pytest.raises(ConfigError, match="off_below: expected less than the 100 noise levels"):
        GuidedPolicy(neural, half, everything, w=2.0, off_below=100)
    assert not same(GuidedPolicy(neural, half, everything, w=2.0), neural, left_out)


def test_policies_print_what_they_are(neural, everything):
    """As `closedform serve` shows them."""
    network = f"NeuralPolicy({neural.n_weights} weights, 100 noise levels)"
    assert repr(neural) == network
    both = f"conditional={everything}, unconditional={everything}"
    guided = GuidedPolicy(neural, everything, everything, w=2.0)
    assert repr(guided) == f"GuidedPolicy({network}, {both}, w=2.0, off_below=2.0)"


def test_equal_demonstrations_guide_nowhere(neural, everything):
    again = demonstrations_for(neural, reach_demos())
    assert same(GuidedPolicy(neural, again, everything, w=5.0), neural)


def test_many_observations_at_once_are_each_guided_by_their_own_neighbors(neural):
    half, full = (demonstrations_for(neural, demos, tau=0.0) for demos in (reach_demos()[:10], reach_demos()))
    policy = GuidedPolicy(neural, half, full, w=1.0)
    windows = np.stack([e.observations[2:4] for e in reach_demos()[:3]])
    together = policy.denoiser(windows, streams(3))
    noise = neural.noise(streams(3), 2)
    for i in range(3):
        alone = policy.denoiser(windows[i : i + 1], streams(1))
        assert np.allclose(alone(noise[i : i + 1], 60)[0], together(noise, 60)[i], atol=1e-5)


def test_demonstrations_take_over_where_the_network_was_never_trained(neural):
    away = shifted(reach_demos(), 5.0)
    policy = AugmentedPolicy(neural, demonstrations_for(neural, away, tau=0.0))
    far = policy.plan(away[0].observations[4:6], seed=0)
    assert far.neural_share < 1e-6 and far.weights.sum() == pytest.approx(1)
    assert far.actions[0] == pytest.approx(away[0].actions[5], abs=0.1)
    observation = reach_demos()[0].observations[5]
    near = policy.plan(observation, seed=0)
    assert near.neural_share > 1 - 1e-6
    assert near.actions == pytest.approx(neural.plan(observation, seed=0).actions, abs=1e-5)


def test_what_it_was_trained_on_tells_better_where_the_network_is_lost(neural):
    # Training data on two sides: their one Gaussian covers the gap between them, their kernels do not.
    sides = Demos([*shifted(reach_demos(), -3.0), *shifted(reach_demos(), 3.0)], *layouts(reach_demos()))
    trained = NeuralPolicy.of(CONFIG, neural._weights(), training_data(sides, CONFIG))
    novel, familiar = (demonstrations_for(trained, demos, tau=0.0) for demos in (reach_demos(), sides))
    windows = [episode.observations[4:6] + 0.05 for episode in reach_demos()[:8]]

    def share(policy, windows):
        made = policy.step_together(windows, [State()] * len(windows), streams(len(windows)).generators)
        return np.mean([plan.neural_share for plan, _ in made])

    gaussian, kernels = AugmentedPolicy(trained, novel), AugmentedPolicy(trained, novel, familiar)
    assert share(kernels, windows) < 0.1 and share(kernels, [window + 3.0 for window in windows]) > 0.9
    assert share(kernels, windows) < share(gaussian, windows)
    assert (gaussian.c, kernels.c) == (0.8, 1.0) and kernels.perturb_neural and not gaussian.perturb_neural


def test_the_kernels_of_training_data_are_densities_in_the_same_units(neural, everything):
    again = AugmentedPolicy(neural, everything, demonstrations_for(neural, reach_demos()))
    window = reach_demos()[3].observations[None, 4:6]
    denoiser = again.denoiser(window, streams(1))
    assert denoiser.closed_form.log_weights is not None
    # The same data on both sides: the network weighs as much as all demonstrations together.
    assert float(denoiser.neural_log_weight) == pytest.approx(
        float(denoiser.closed_form.log_weights.logsumexp(-1)), abs=1e-3
    )
    # With others far away the same data have another unit; densities do not depend on it.
    rng = np.random.default_rng(0)
    near = [(rng.normal(size=(40, 4)), rng.normal(size=(40, 2))) for _ in range(5)]
    both = (near, [*near, *((observations + 100, actions) for observations, actions in near)])
    forms = [
        demonstrations_for(neural, Demos(some, *layouts(reach_demos())), n_neighbors=160, regularization=1e-10)
        for some in both
    ]
    assert forms[0].model.kernel.scale[0] > 10 * forms[1].model.kernel.scale[0]
    window = near[0][0][None, 4:6]
    weights = [AugmentedPolicy(neural, everything, form)._neural_log_weights(window)[0] for form in forms]
    assert weights[0] == pytest.approx(weights[1], abs=1e-3)


def test_far_from_its_data_a_wider_kernel_gives_the_network_more_weight(neural, everything):
    window = np.repeat((reach_demos()[3].observations[2] + 3.0)[None, None], 2, axis=1)
    weights = [
        AugmentedPolicy(neural, everything, c=c).denoiser(window, streams(1)).neural_log_weight[0, 0]
        for c in (0.5, 2.0)
    ]
    assert weights[0] < weights[1]


def test_edited_policies_are_saved_and_loaded(neural, everything, tmp_path):
    half = demonstrations_for(neural, reach_demos()[:10])
    for name, policy in (
        ("guided", GuidedPolicy(neural, half, everything, w=1.5, off_below=20)),
        ("augmented", AugmentedPolicy(neural, half, c=2.0)),
        ("knowing", AugmentedPolicy(neural, half, everything, perturb_neural=False)),
    ):
        policy.save(tmp_path / name)
        policy.save(tmp_path / name)  # over itself
        loaded = load_policy(tmp_path / name)
        assert type(loaded) is type(policy) and same(loaded, policy)
    AugmentedPolicy(neural, half).save(tmp_path / "knowing")  # over one with another part, which goes
    assert set(AugmentedPolicy.load(tmp_path / "knowing").demonstrations) == {"novel"}
    AugmentedPolicy(neural, half, everything).save(tmp_path / "knowing")
    shutil.rmtree(tmp_path / "knowing" / "familiar")
    with pytest.raises(ClosedFormError, match="expected a saved policy"):  # and not another policy without a word
        load_policy(tmp_path / "knowing")
    (tmp_path / "guided" / "notes.txt").write_text("mine")
    with pytest.raises(
        ClosedFormError, match="expected an empty folder or an edited policy to replace, found other files"
    ):
        AugmentedPolicy(neural, half).save(tmp_path / "guided")
    (tmp_path / "guided" / "notes.txt").unlink()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    config = json.loads((tmp_path / "guided" / "config.json").read_text())
    for change, message in (
        ({"edit": "improve"}, "expected an edit of version 1"),
        ({"parts": ["conditional"]}, "expected the parts conditional, unconditional"),
        ({"parameters": {"w": 1.0, "luck": 2}}, "expected the parameters of the edit"),
        ({"parameters": {"w": -1.0}}, "w: expected 0 to 1e6"),
    ):
        (tmp_path / "guided" / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ClosedFormError, match=message):
            load_policy(tmp_path / "guided")


def test_parts_that_do_not_fit_are_named(neural, everything):
    other = Demos(list(reach_demos()), Layout.of(("arm", "position", 2), ("target", "position", 2)), None)
    with pytest.raises(DataError, match=r"observation layout of the neural policy \(hand position 2.*found arm"):
        demonstrations_for(neural, other)
    with pytest.raises(ConfigError, match="n_action_steps: expected 8 as the neural policy has, found 4 in novel"):
        AugmentedPolicy(neural, demonstrations_for(neural, reach_demos(), n_action_steps=4, n_execute=4))
    with pytest.raises(ConfigError, match="frames: expected 'world'"):
        AugmentedPolicy(neural, demonstrations_for(neural, reach_demos(), frames="auto"))
    with pytest.raises(ConfigError, match="features: expected 'geometric' in novel"):
        AugmentedPolicy(neural, demonstrations_for(neural, reach_demos(), features="scaled"))
    with pytest.raises(ConfigError, match="c: expected a positive number"):
        AugmentedPolicy(neural, everything, c=-1.0)


def test_the_command_edits_and_the_result_can_be_evaluated(neural, tmp_path, capsys):
    neural.save(tmp_path / "neural")
    save_demos(reach_demos(), tmp_path / "all")
    save_demos(reach_demos()[:10], tmp_path / "half")
    common = [str(tmp_path / "neural"), "--demos", str(tmp_path / "half")]
    main(["edit", "augment", *common, "--familiar", str(tmp_path / "all"), "-o", str(tmp_path / "augmented")])
    main(["edit", "guide", *common, "--everything", str(tmp_path / "all"), "--w", "2", "-o", str(tmp_path / "guided")])
    assert "GuidedPolicy of" in capsys.readouterr().out
    for name in ("augmented", "guided"):
        arguments = ["--env", "tests.evaluation.toy:Reach", "--policy", str(tmp_path / name), "--episodes", "1"]
        main(["eval", *arguments, "--json", str(tmp_path / f"{name}.json")])
        assert json.loads((tmp_path / f"{name}.json").read_text())["complete"]
    with pytest.raises(SystemExit):
        main(["edit", "guide", *common, "-o", str(tmp_path / "x")])
    assert "--everything" in capsys.readouterr().err
    for arguments, message in (
        (["augment", *common, "--w", "2"], "--w"),
        (["guide", *common, "--everything", str(tmp_path / "all"), "--c", "1"], "--c"),
        (["guide", str(tmp_path / "half"), *common[1:], "--everything", common[2]], "expected a saved policy"),
        (["guided", *common], "unknown command 'guided': did you mean guide?"),
    ):
        with pytest.raises(SystemExit):
            main(["edit", *arguments, "-o", str(tmp_path / "x")])
        assert message in capsys.readouterr().err
    for kind, own, other in (("guide", "--everything", "--familiar"), ("augment", "--familiar", "--off-below")):
        with pytest.raises(SystemExit):
            main(["edit", kind, "--help"])
        said = capsys.readouterr().out
        assert own in said and other not in said
    main(["info", str(tmp_path / "guided")])
    said = capsys.readouterr().out
    assert "conditional: 10 episodes" in said and "off_below" in said


def test_policies_that_differ_have_other_fingerprints(neural, everything):
    other = NeuralPolicy.of(CONFIG, neural._weights() + 1e-3, training_data(reach_demos(), CONFIG))
    policies = [neural, other, everything, demonstrations_for(neural, reach_demos()[:10])]
    policies += [AugmentedPolicy(network, everything, c=c) for network in (neural, other) for c in (0.5, 0.8)]
    prints = [json.dumps(policy.fingerprint()) for policy in policies]
    assert len(set(prints)) == len(prints)
    assert json.dumps(AugmentedPolicy(neural, everything, c=0.5).fingerprint()) in prints


def test_pruning_leaves_out_only_what_is_negligible(neural, everything):
    rng, windows = streams(4), np.stack([e.observations[2:4] for e in reach_demos()[:4]])
    policy = GuidedPolicy(neural, everything, everything, w=1.0)
    form = policy.denoiser(windows, rng).unconditional
    assert isinstance(form, Pruned)
    whole = ClosedForm(form.process, form.actions, form.log_weights, form.perturbations)
    for s in (100, 70, 40, 10, 3, 1):
        clean = form.actions[:, :3]
        a_s = form.process.gain(s) * clean + form.process.noise(s) * torch.randn(clean.shape)
        shares = form.weights(a_s, s)
        assert torch.allclose(shares, whole.weights(a_s, s), atol=1e-6)
        assert torch.allclose(shares.sum(-1), torch.ones(4, 3), atol=1e-5)


def test_guidance_is_nothing_where_no_demonstration_was_left_out(neural):
    far = Demos([*reach_demos(), *shifted(reach_demos(), 50.0)], *layouts(reach_demos()))
    some = Demos([*reach_demos(), *shifted(reach_demos(), 50.0)[10:]], *layouts(reach_demos()))
    everything, wanted = (demonstrations_for(neural, demos, n_neighbors=50) for demos in (far, some))
    guided = GuidedPolicy(neural, wanted, everything, w=3.0)
    here, there = reach_demos()[0].observations[5], far[20].observations[5]
    assert guided.plan(here, seed=0).actions == pytest.approx(neural.plan(here, seed=0).actions, abs=1e-6)
    assert guided.plan(there, seed=0).actions != pytest.approx(neural.plan(there, seed=0).actions, abs=1e-3)


def test_plans_made_together_are_those_made_alone(neural, everything):
    windows = [e.observations[2:4] for e in reach_demos()[:4]]
    half = demonstrations_for(neural, reach_demos()[:10])
    sampled = neural.with_sampling("ddpm", 100)
    for policy in (neural, sampled, GuidedPolicy(sampled, half, everything, w=1.0), AugmentedPolicy(sampled, half)):
        together = [plan for plan, _ in policy.step_together(windows, [State()] * 4, streams(4).generators)]
        for i in range(4):
            alone = policy.plan(windows[i], seed=i)
            assert together[i].actions == pytest.approx(alone.actions, abs=1e-3)
            assert together[i].neural_share == pytest.approx(alone.neural_share, abs=1e-3)


@pytest.mark.parametrize("far", [1e155, 1e300])
@pytest.mark.parametrize("kind", [GuidedPolicy, AugmentedPolicy])
def test_observations_that_cannot_be_compared_are_refused(neural, everything, kind, far):
    edited = kind(neural, everything, everything)
    observation = np.full(edited.observation_layout.width, far)
    with pytest.raises(DataError, match="observation 0 cannot be compared with the demonstrations"):
        edited.plan(observation, seed=0)
    with pytest.raises(DataError, match="observation 0 cannot be compared with the demonstrations"):
        edited.sample(observation[None], 2, seed=0)
