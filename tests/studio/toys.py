"""A small scene for tests of the studio: a hand that moves to a puck's place, and sessions in it."""

import numpy as np

from closedform import ClosedFormPolicy, Demos, Episode, Layout
from closedform.evaluation.drawing import Drawing, Shape
from closedform.evaluation.environment import StepResult
from closedform.studio import Collection, StudioSession

OBSERVATIONS = Layout.of(("hand", "position", 2), ("puck", "position", 2))
ACTIONS = Layout.of(("hand", "position", 2))


class Table:
    """A hand moves 4 toward its target at each step; it succeeds where the puck is."""

    observation_layout, action_layout = OBSERVATIONS, ACTIONS
    max_steps, rate = 60, 50.0
    drawing = Drawing(
        (0, 100, 100, 0), {"puck": Shape((((-4, -4), (4, -4), (4, 4), (-4, 4)),)), "hand": Shape(radius=3)}
    )

    def reset(self, seed):
        rng = np.random.default_rng(seed)
        self.hand, self.puck = rng.uniform(5, 45, 2), rng.uniform(55, 95, 2)
        return self._seen()

    def step(self, action):
        away = np.asarray(action) - self.hand
        self.hand = self.hand + away * min(1.0, 4 / max(np.linalg.norm(away), 1e-9))
        near = bool(np.linalg.norm(self.hand - self.puck) < 3)
        return StepResult(self._seen(), float(near), near, near)

    def _seen(self):
        return np.concatenate([self.hand, self.puck])


def template(**parameters):
    still = Episode(np.zeros((4, 4)), np.zeros((4, 2)))
    return ClosedFormPolicy(Demos([still], OBSERVATIONS, ACTIONS, Table.rate), **parameters)


def make_session(policy=None, **options):
    collection = Collection(template(), policy, rate=Table.rate, env="table", log=options.pop("log", None))
    return StudioSession(Table(), collection, **options)


def demonstrate(session, n=60):
    """A person drags the hand to the puck, and lets go after n steps or where the run ends."""
    seed = session.seed
    for _ in range(n):
        if session.outcome or session.seed != seed:
            break
        session.step(tuple(session.observation[2:]))


def until_next(session):
    """Nobody touches anything until the next run begins."""
    seed = session.seed
    for _ in range(400):
        session.step(None)
        if session.seed != seed:
            return
    raise AssertionError("the run never ended")


class Filmed:
    """A hand in space that can only be seen in pictures: it succeeds where it grips above a corner."""

    observation_layout = Layout.of(("hand", "position", 3), (None, "other", 1))
    action_layout = Layout.of(("hand", "position", 3), (None, "other", 1))
    max_steps, rate = 60, 50.0
    view, reach = ((0, 1, 0), (1, 0, 0), (0, 0, 1)), 10.0

    def reset(self, seed):
        self.place, self.grips = np.random.default_rng(seed).uniform(0, 1, 3), False
        return self._seen()

    def step(self, action):
        self.place, self.grips = np.asarray(action[:3], np.float64), bool(action[3] > 0)
        done = self.grips and bool(self.place[2] > 4)
        return StepResult(self._seen(), float(done), done, done)

    def render(self):
        return np.full((48, 64, 3), int(20 * self.place[2]) % 256, np.uint8)

    def hand(self):
        return self.place

    def closed(self):
        return self.grips

    def action_to(self, position, closed):
        return np.array([*position, 1.0 if closed else -1.0])

    def _seen(self):
        return np.array([*self.place, float(self.grips)])


def make_filmed_session(**options):
    still = Episode(np.zeros((4, 4)), np.zeros((4, 4)))
    policy = ClosedFormPolicy(Demos([still], Filmed.observation_layout, Filmed.action_layout, Filmed.rate))
    return StudioSession(Filmed(), Collection(policy, rate=Filmed.rate, env="filmed"), **options)
