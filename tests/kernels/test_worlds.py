"""Reference, compiled kernel and torch plan alike, whatever the robot: whole layouts are drawn, not only numbers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormPolicy, Demos
from closedform.geometry.encoding import Encoding
from closedform.geometry.layout import SPATIAL_ROTATIONS, Layout
from closedform.geometry.so3 import rotation_matrix, two_columns
from closedform.policies.backends.batch_planner import Numbers
from tests.worlds import CHAINS, random_values, random_world, reference_and_compiled

COMPILED, SINGLE = 1e-4, 1e-3  # normalized units, as the README promises them


def pose_columns(layout, body):
    """The columns of a body's spatial position and rotation, with the rotation's encoding; None if it has not both."""
    own = {entry.kind: (entry, columns) for entry, columns in layout.slices() if entry.body == body}
    rotation = next((own[kind] for kind in SPATIAL_ROTATIONS if kind in own), None)
    if "position" not in own or own["position"][0].size != 3 or rotation is None:
        return None
    return own["position"][1], rotation[1], Encoding(Layout((rotation[0],)))


def with_grasps(demos, body, hand):
    """The same, but in the second half of each episode the hand carries the body along."""
    layout = demos.observation_layout
    moved, moving = pose_columns(layout, body), pose_columns(layout, hand)
    if moved is None or moving is None:
        return demos
    episodes = []
    for episode in demos:
        observations = np.array(episode.observations)
        half = len(observations) // 2
        axes = rotation_matrix(moving[2].encode(observations[:, moving[1]]))[half:]
        observations[half:, moved[0]] = observations[half:, moving[0]] + axes @ np.array([0.1, 0.0, -0.05])
        observations[half:, moved[1]] = moved[2].decode(two_columns(axes))
        episodes.append((observations, episode.actions))
    return Demos(episodes, layout, demos.action_layout)


def grasping_world(rng):
    """One or two hands that carry a cube in the second half of each episode, rotations of any kind."""
    hands = ["left", "right"][: int(rng.integers(1, 3))]

    def poses(bodies):
        return [part for body in bodies for part in (f"{body} position 3", f"{body} {rng.choice(SPATIAL_ROTATIONS)}")]

    observed, commanded = poses([*hands, "cube"]), [*poses(hands), "- binary"]
    if rng.random() < 0.4:  # hands that do not turn
        commanded = [part for part in commanded if "position" in part or "binary" in part]
    layouts = Layout.parse(", ".join(observed)), Layout.parse(", ".join(commanded))
    lengths = rng.integers(20, 40, size=int(rng.integers(3, 8)))
    episodes = [(random_values(rng, layouts[0], n), random_values(rng, layouts[1], n)) for n in lengths]
    return with_grasps(Demos(episodes, *layouts), "cube", hands[0])


def with_marker(rng, demos):
    """The same with a marker that is elsewhere in every episode, and at which the first object ends."""
    layout, commanded = demos.observation_layout, demos.action_layout.bodies
    places = [(e, columns) for e, columns in layout.slices() if e.kind == "position" and e.body not in commanded]
    if not places:
        return demos
    episodes = []
    for episode in demos:
        observations = np.array(episode.observations)
        marker = rng.normal(size=places[0][0].size)
        observations[:, places[0][1]] += marker - observations[-1, places[0][1]]
        episodes.append((np.hstack([observations, np.tile(marker, (len(observations), 1))]), episode.actions))
    marker = Layout.of(("marker", "position", places[0][0].size))
    return Demos(episodes, Layout((*layout.entries, *marker.entries)), demos.action_layout)


@settings(max_examples=30, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_all_three_plan_alike(seed):
    rng = np.random.default_rng(seed)
    demos = random_world(rng) if rng.random() < 0.6 else grasping_world(rng)
    if rng.random() < 0.5:
        demos = with_marker(rng, demos)
    process, sampler = CHAINS[int(rng.integers(len(CHAINS)))]
    policy = ClosedFormPolicy(
        demos,
        n_obs_steps=int(rng.integers(1, 3)),
        n_action_steps=int(rng.integers(1, 7)),
        n_diffusion_steps=8,
        n_perturbations=int(rng.integers(1, 9)),
        process=process,
        sampler=sampler
        if sampler != "ddpm"
        else "ddim",  # which draws no noise along the way, as torch would draw other
        n_neighbors=min(60, sum(map(len, demos))),
    )
    episode = demos[int(rng.integers(len(demos)))]
    observations = episode.observations[rng.integers(len(episode), size=3)]
    windows = policy.windows(observations)
    reference, compiled = reference_and_compiled(policy, windows)
    planner = policy.batch_planner("cpu")
    numbers = Numbers.like_the_reference(planner, len(windows), np.random.default_rng(1))
    near, chunks = planner.plan(planner.queries(windows), numbers)
    np.testing.assert_array_equal(compiled.choices, reference.choices)
    np.testing.assert_allclose(compiled.chunks, reference.chunks, atol=COMPILED)
    np.testing.assert_array_equal(near.choices.numpy(), reference.choices)
    np.testing.assert_allclose(chunks.numpy(), reference.chunks, atol=SINGLE)
