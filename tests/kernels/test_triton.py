"""The GPU's kernels equal the reference: torch on the CPU, and Triton's interpreter for the fused ones."""

import numpy as np
import pytest
import torch

from closedform import ClosedFormPolicy
from closedform.errors import ConfigError, DataError
from closedform.kernels import torch_plan, triton_diffuse
from closedform.kernels.triton_metric import local_squared_distances
from closedform.policies import batch_planner
from closedform.policies.batch_planner import Neighbors, Numbers
from closedform.retrieval.penalty import Penalty
from tests.conftest import planar_demos, random_demos
from tests.retrieval.test_recorded_steps import demos_with

SINGLE = 2e-5  # normalized units; Push-T's plans differ by 2e-6


def planned_both_ways(policy, observations):
    """Chunks of the reference and of the planner on torch tensors, from the same random numbers."""
    windows = policy.windows(observations)
    made = policy._generate_reference(policy.model, windows, 1, np.random.default_rng(0), Penalty.none(), explain=False)
    planner = policy.batch_planner("cpu")
    near, chunks = planner.plan(
        planner.queries(windows), Numbers.like_the_reference(planner, len(windows), np.random.default_rng(0))
    )
    np.testing.assert_array_equal(near.choices.numpy(), made.choices)
    np.testing.assert_allclose(near.distances.numpy(), made.distances, rtol=1e-3, atol=1e-4)
    return made.chunks, chunks.numpy()


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_torch_on_pusht(pusht, preset):
    rng = np.random.default_rng(0)
    observations = pusht.all_observations()[rng.integers(pusht.n_steps, size=8)]
    policy = ClosedFormPolicy(pusht, preset, n_diffusion_steps=30)
    reference, chunks = planned_both_ways(policy, observations + rng.normal(size=observations.shape))
    np.testing.assert_allclose(chunks, reference, atol=1e-3)
    assert np.median(np.abs(chunks - reference).max((1, 2))) < SINGLE


@pytest.mark.parametrize("metric", ["euclidean", "global_mahalanobis", "local_mahalanobis"])
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_torch_with_other_metrics(metric, tau):
    rng = np.random.default_rng(1)
    policy = ClosedFormPolicy(random_demos(rng, 4, 40, 3, 2), metric=metric, tau=tau, n_action_steps=4, n_neighbors=50)
    reference, chunks = planned_both_ways(policy, rng.normal(size=(6, 3)))
    np.testing.assert_allclose(chunks, reference, atol=1e-3)


@pytest.mark.parametrize("kind", ["planar", "spatial", "held"])
def test_torch_in_frames_and_with_what_is_held(kind):
    demos = demos_with(kind)
    policy = ClosedFormPolicy(demos, n_action_steps=4, n_neighbors=60, n_diffusion_steps=20)
    observations = np.concatenate([episode.observations[::8] for episode in demos])
    reference, chunks = planned_both_ways(policy, observations)
    np.testing.assert_allclose(chunks, reference, atol=1e-3)


def test_sampling_gives_actions_of_the_right_shape_and_the_same_for_a_seed():
    rng = np.random.default_rng(3)
    policy = ClosedFormPolicy(planar_demos(rng), n_action_steps=4)
    planner = policy.batch_planner("cpu")
    observations = policy.episodes[0].observations[:5]
    chunks = planner.sample(observations, 3, seed=1)
    assert chunks.shape == (5, 3, 4, 2)
    np.testing.assert_array_equal(chunks, planner.sample(observations, 3, seed=1))
    np.testing.assert_allclose(chunks.mean(1), policy.sample(observations, 64, seed=1).mean(1), atol=0.2)
    with pytest.raises(DataError, match="expected observations of"):
        planner.sample(observations[0])
    with pytest.raises(ConfigError, match="expected one that torch can use here, found 'abacus'"):
        policy.batch_planner("abacus")


def fused_and_all(policy, observations, n_samples=1):
    """Chunks of the fused kernel, what it left over, and chunks with all neighbors weighed."""
    planner = policy.batch_planner("cpu")
    queries = planner.queries(policy.windows(observations))
    numbers = planner.draw(len(queries), n_samples, torch.Generator().manual_seed(0))
    chunks, left_over = planner._diffuse_fused(planner.neighbors(queries), numbers)
    _, expected = planner._unfused(queries, numbers)
    return chunks.numpy(), left_over.numpy() > 0, expected.numpy()


@pytest.mark.parametrize(
    ("process", "sampler"), [("flow", "euler"), ("flow", "ddpm"), ("ddpm_cosine", "ddpm"), ("ddpm_linear", "ddim")]
)
def test_the_fused_kernel_weighs_what_matters(process, sampler):
    rng = np.random.default_rng(4)
    policy = ClosedFormPolicy(
        random_demos(rng, 6, 60, 3, 2), process=process, sampler=sampler, n_action_steps=5, n_diffusion_steps=12
    )
    chunks, left_over, expected = fused_and_all(policy, rng.normal(size=(4, 3)), n_samples=2)
    assert not left_over.all()
    np.testing.assert_allclose(chunks[~left_over], expected[~left_over], atol=SINGLE)


def test_what_the_fused_kernel_cannot_prove_it_leaves_over(monkeypatch):
    """With a wide kernel all neighbors matter: none may be dropped, and a larger tile takes up what it can."""
    rng = np.random.default_rng(5)
    policy = ClosedFormPolicy(
        random_demos(rng, 6, 60, 3, 2), bandwidth=0.6, n_action_steps=4, n_diffusion_steps=10, n_neighbors=90
    )
    observations = rng.normal(size=(6, 3))
    shares = []
    for tiles in (((16, 16, False),), ((16, 16, False), (32, 64, True)), ((128, 16, True),)):
        monkeypatch.setattr(triton_diffuse, "TILES", tiles)
        chunks, left_over, expected = fused_and_all(policy, observations)
        np.testing.assert_allclose(chunks[~left_over], expected[~left_over], atol=SINGLE)
        shares.append(left_over.mean())
    assert shares[0] > 0 and shares[0] >= shares[1] and shares[2] == 0


def test_a_second_try_looks_at_the_neighbors_that_matter_in_the_end(monkeypatch):
    """A few that weigh nothing at first lie where perturbations lead, behind many that weigh more and lie far away."""
    rng = np.random.default_rng(8)
    policy = ClosedFormPolicy(random_demos(rng, 3, 30, 3, 2), n_action_steps=4, n_diffusion_steps=30, tau=0.3)
    planner = policy.batch_planner("cpu")
    numbers = planner.draw(1, 1, torch.Generator().manual_seed(0))
    size, eps = numbers.noise.shape[2], numbers.perturbations[0].numpy()
    together = 0.01 * rng.normal(size=(10, size))
    far = 5 * np.eye(size)[rng.integers(size, size=20)]
    chunks = torch.as_tensor(np.concatenate([together, far, eps[:4]]), dtype=torch.float32)
    log_weights = torch.cat([-torch.arange(10.0), torch.linspace(-40, -60, 20), torch.full((4,), -70.0)])[None]
    near = Neighbors(
        torch.zeros((1, 1, 2), dtype=torch.int64),
        torch.zeros(1),
        chunks,
        size * torch.arange(34)[None],
        log_weights,
        *(bound[None] for bound in chunks.aminmax(dim=0)),
    )
    monkeypatch.setattr(planner, "neighbors", lambda queries, everything=False: near)
    monkeypatch.setattr(triton_diffuse, "TILES", ((16, 64, True),))
    monkeypatch.setattr(triton_diffuse, "SECOND_TILES", ((16, 64, True),))
    queries = torch.zeros((1, 3))
    _, attempts, left_over = planner._fused(queries, numbers, queries)
    _, chunk, still_left_over = planner._fused_in_order(queries, numbers, attempts)
    _, expected = planner._unfused(queries, numbers)
    assert left_over.all() and not still_left_over.any()
    np.testing.assert_allclose(chunk.numpy(), expected.numpy(), atol=SINGLE)


@pytest.mark.parametrize("width", [3, 16, 20])
@pytest.mark.parametrize("shrinkage", [0.0, 0.4])
def test_the_fused_metric(width, shrinkage):
    rng = np.random.default_rng(6)
    demos = random_demos(rng, 4, 60, width, 2)
    policy = ClosedFormPolicy(demos, n_action_steps=3, n_neighbors=70, shrinkage=shrinkage)
    planner = policy.batch_planner("cpu")
    queries = planner.queries(rng.normal(size=(3, 1, width)))
    rows = torch_plan.nearest_rows(planner.device_store, queries, 70)
    expected = torch_plan.squared_distances(planner.device_store, queries, rows)
    found = local_squared_distances(planner.device_store.features, queries, rows, width, 1e-3, shrinkage)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-3)


def test_the_fused_metric_where_some_features_do_not_count():
    rng = np.random.default_rng(9)
    plain = random_demos(rng, 4, 30, 3, 2)
    demos = [(np.hstack([e.observations, np.full((len(e), 5), 2.0)]), e.actions) for e in plain]
    policies = [ClosedFormPolicy(each, n_action_steps=3, n_neighbors=70, shrinkage=0.4) for each in (plain, demos)]
    windows, found = rng.normal(size=(3, 1, 3)), []
    for policy, wide in zip(policies, (windows, np.concatenate([windows, np.full((3, 1, 5), 2.0)], 2)), strict=True):
        planner = policy.batch_planner("cpu")
        store, queries, kernel = planner.device_store, planner.queries(wide), policy.model.kernel
        rows = torch_plan.nearest_rows(store, queries, 70).sort().values
        share = kernel.record.share
        found.append(torch_plan.squared_distances(store, queries, rows).numpy())
        found.append(
            local_squared_distances(store.features, queries, rows, len(kernel.scale), 1e-3, 0.4, share).numpy()
        )
    assert policies[1].model.kernel.record.share == pytest.approx(8 / 3)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=2e-3)


@pytest.mark.parametrize("n_neighbors", [60, 2000])
def test_the_fused_metric_where_all_rows_are_neighbors(n_neighbors):
    rng = np.random.default_rng(7)
    policy = ClosedFormPolicy(random_demos(rng, 3, 20, 3, 2), n_action_steps=3, shrinkage=0.2)
    planner = policy.batch_planner("cpu")
    queries = planner.queries(rng.normal(size=(4, 1, 3)))
    rows = torch_plan.nearest_rows(planner.device_store, queries, n_neighbors)
    assert rows.is_contiguous() and rows.shape == (4, 60)
    expected = torch_plan.squared_distances(planner.device_store, queries, rows)
    found = local_squared_distances(planner.device_store.features, queries, rows, 3, 1e-3, 0.2)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-3)


def test_many_plans_are_made_a_part_at_a_time(monkeypatch):
    rng = np.random.default_rng(8)
    policy = ClosedFormPolicy(random_demos(rng, 3, 20, 3, 2), n_action_steps=3, n_diffusion_steps=5, tau=0.0)
    planner = policy.batch_planner("cpu")
    observations = rng.normal(size=(7, 3))
    monkeypatch.setattr(batch_planner, "LOGITS_AT_ONCE", 2 * 60 * 32)
    assert planner._unfused_at_once(1) == 2
    assert planner.sample(observations, seed=0).shape == (7, 1, 3, 2)


def test_the_planner_keeps_as_many_neighbors_as_the_largest_tile_sees():
    weighed, watched, _ = triton_diffuse.TILES[-1]
    assert weighed + watched + 1 == batch_planner.N_KEPT
