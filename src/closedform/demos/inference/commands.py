"""Commands: which observed numbers follow which numbers of the action, found by regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.demos.inference.sample import Sample, dot

LAGS = 9  # steps of delay that are tried
WINDOW = 5  # steps over which displacements are summed, so that noise averages out
STEPS = 3000
LEVEL = 0.5  # of a target's variance that the observed number explains without scaling
ALONE = 0.9  # the same if one number is commanded and none of its neighbors
SCALED = 0.8  # squared correlation of a target in other units, such as a joint's in fractions of its range
LEAD = 0.1  # how well the offset of the target predicts the number's motion
EACH, TOGETHER = 0.25, 0.6  # what displacements explain of each number, and of the motion of three
PAIR = 0.8  # the same for the motion of two, which chance explains more often
EXACT = 0.98
SHIFTS = (0.2, 0.35, 0.5, 0.65, 0.8)  # of an episode, by which actions are shifted for comparison
GAIN = 0.3  # of what shifted actions leave unexplained, which unshifted ones must explain
CHANCE = 0.01
PHASES = 30  # parts of an episode at which episodes are compared
CANDIDATES = 24  # runs that are examined closely


@dataclass(frozen=True)
class Match:
    """A run of action columns that command a run of observed columns.

    Attributes:
        how: `target` or `displacement`.
        action, observation: the first column of each run.
        size: how many.
        scale, lag, r2: see `Command`.
        each: the explained fraction of each number.
        overall: the explained fraction of all observed motion, including while the action rests; a carried object
            follows as well as the hand that carries it, but not all the time.
        further: how many more numbers next to the run are commanded one for one, in other units, as joints would be.
        astray: how many other numbers of the action command observed numbers elsewhere, so that order means nothing.
    """

    how: str
    action: int
    observation: int
    size: int
    scale: float
    lag: float
    r2: float
    each: tuple[float, ...] = ()
    overall: float = 1.0
    further: int = 0
    astray: int = 0

    @property
    def action_columns(self) -> tuple[int, ...]:
        """Which numbers of the action."""
        return tuple(range(self.action, self.action + self.size))

    @property
    def observation_columns(self) -> tuple[int, ...]:
        """Which numbers of the observation."""
        return tuple(range(self.observation, self.observation + self.size))


def find_commands(sample: Sample, free: np.ndarray, free_actions: np.ndarray) -> list[Match]:
    """Runs of action columns that command runs of observed columns, as targets or displacements, without overlap.

    Args:
        sample: the data.
        free: (D_o,), observed columns that may be commanded.
        free_actions: (D_a,), action columns that may command.
    """
    matches = _targets(sample, free, free_actions)
    used = {column for match in matches for column in match.action_columns}
    left = free_actions & ~np.isin(np.arange(len(free_actions)), list(used))
    watched = {column for match in matches for column in match.observation_columns}
    return matches + _displacements(sample, free & ~np.isin(np.arange(len(free)), list(watched)), left)


def _targets(sample: Sample, free: np.ndarray, free_actions: np.ndarray) -> list[Match]:
    """Actions that are future values of a number: with the same unit and origin, and ahead of it."""
    n_a, n_o = sample.a.shape[1], sample.x.shape[1]
    level, lags = np.full((n_a, n_o), -np.inf), np.zeros((n_a, n_o), int)
    for lag in range(LAGS):
        steps = sample.steps(lag, most=STEPS)
        if len(steps) < 16:
            break
        a, later = sample.a[steps], sample.x[steps + lag]
        spread = np.maximum(a.var(0), 1e-24)
        # mean (a - x)^2 for all pairs, from centered sums
        shift = a.mean(0)[:, None] - later.mean(0)
        error = a.var(0)[:, None] + later.var(0) - 2 * (a - a.mean(0)).T @ (later - later.mean(0)) / len(a) + shift**2
        explained = 1 - error / spread[:, None]
        better = explained > level + 1e-9
        level, lags = np.where(better, explained, level), np.where(better, lag, lags)
    level[:, ~free], level[~free_actions] = -np.inf, -np.inf
    alike = _correlated(sample) * np.outer(free_actions, free)
    pairs = {}
    for j in np.flatnonzero(level.max(1, initial=-np.inf) > LEVEL):
        for i in np.argsort(-level[j])[:4]:
            best = level[j, i] > LEVEL and level[j, i] >= level[:, i].max() - 1e-9
            if best and _leads(sample, int(j), int(i), int(lags[j, i])):
                pairs[int(j)] = int(i)
                break
    runs = _diagonals(pairs)
    matches = [
        Match(
            how="target",
            action=run[0],
            observation=pairs[run[0]],
            size=len(run),
            scale=1.0,
            lag=float(np.mean([lags[j, pairs[j]] for j in run])),
            r2=float(np.mean([level[j, pairs[j]] for j in run])),
            each=tuple(float(level[j, pairs[j]]) for j in run),
            further=_further(alike > SCALED, run[0], pairs[run[0]], len(run)),
            astray=sum(len(other) == 1 and other is not run for other in runs),
        )
        for run in runs
        if len(run) > 1 or level[run[0], pairs[run[0]]] > ALONE
    ]
    return [match for match in matches if is_significant(sample, match)]


def _correlated(sample: Sample) -> np.ndarray:
    """The squared correlation of each action number with each number observed one step later. (D_a, D_o)"""
    steps = sample.steps(1, most=STEPS)
    if len(steps) < 16:
        return np.zeros((sample.a.shape[1], sample.x.shape[1]))
    a, later = sample.a[steps], sample.x[steps + 1]
    a, later = (values - values.mean(0) for values in (a, later))
    product = a.T @ later
    return product**2 / np.maximum(np.outer(np.sum(a**2, 0), np.sum(later**2, 0)), 1e-150)


def _further(linked: np.ndarray, j: int, i: int, size: int) -> int:
    """How many linked pairs of columns continue a run on either side. `linked` is (D_a, D_o)."""
    count = 0
    for step, at in ((1, size), (-1, -1)):
        while 0 <= j + at < linked.shape[0] and 0 <= i + at < linked.shape[1] and linked[j + at, i + at]:
            count, at = count + 1, at + step
    return count


def _leads(sample: Sample, j: int, i: int, lag: int) -> bool:
    """Whether a number moves toward the target; a saturated controller limits only its speed."""
    ahead = min(max(lag, 1), int(sample.left.max()))
    steps = sample.steps(ahead, most=STEPS)
    if len(steps) < 16:
        return False
    moved = sample.x[steps + ahead, i] - sample.x[steps, i]
    lead = sample.a[steps, j] - sample.x[steps, i]
    most = np.quantile(np.abs(moved), 0.9)
    if most <= 0:
        return False
    lead = np.clip(lead, -2 * most, 2 * most)
    product = dot(moved, lead)
    return product > 0 and product**2 > LEAD * dot(moved, moved) * dot(lead, lead)


def _diagonals(pairs: dict[int, int]) -> list[list[int]]:
    """Runs of action columns whose observed columns also form a run."""
    runs: list[list[int]] = []
    for j in sorted(pairs):
        if runs and j == runs[-1][-1] + 1 and pairs[j] == pairs[runs[-1][-1]] + 1:
            runs[-1].append(j)
        else:
            runs.append([j])
    return runs


def displacement_sums(sample: Sample, lag: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The commanded displacement in windows of steps. Returns (n, D_a) and the (n,) steps where they begin."""
    steps = sample.steps(window, before=lag, most=STEPS)
    return sample.total[steps - lag + window] - sample.total[steps - lag], steps


def is_significant(sample: Sample, match: Match) -> bool:
    """Whether a match is better than with the same actions at other times, and than the best of many by chance.

    Slow paths have few independent values, about as many as times that the actions cross their mean; and actions with
    an offset explain any drift, at any time.
    """
    columns, own = list(match.action_columns), sample.a[:, list(match.action_columns)]
    centered = own - own.mean(0)
    crossings = np.sum(np.diff(np.sign(centered), axis=0) != 0) / sample.n_episodes + 1
    crossings *= 1 + (sample.n_episodes - 1) * _unlike(sample, own)
    if match.how == "target":  # the unit and origin of each number agree as well
        crossings += 2 * match.size
    tried = sample.a.shape[1] * sample.x.shape[1] * LAGS
    if np.log(tried) + crossings / 2 * np.log(max(1 - match.r2, 1e-12)) > np.log(CHANCE):
        return False
    explained = _explained_at(sample, match, own)
    for share in SHIFTS:
        moved = np.concatenate(
            [
                np.roll(sample.a[first:last, columns], int(share * (last - first)), axis=0)
                for first, last in zip(sample.bounds[:-1], sample.bounds[1:], strict=True)
            ]
        )
        elsewhere = max(_explained_at(sample, match, moved), 0.0)
        if explained - elsewhere < GAIN * (1 - elsewhere):
            return False
    return True


def _unlike(sample: Sample, values: np.ndarray) -> float:
    """The fraction of the variance that is not shared by all episodes at the same phase. (N, D) -> 0 to 1."""
    long = np.flatnonzero(np.diff(sample.bounds) > 1)
    if len(long) < 2:
        return 1.0
    rows = np.stack([np.linspace(sample.bounds[e], sample.bounds[e + 1] - 1, PHASES).astype(int) for e in long])
    spread = max(float(values[rows].var(axis=(0, 1)).sum()), 1e-150)
    return float(values[rows].var(axis=0).mean(axis=0).sum()) / spread


def _explained_at(sample: Sample, match: Match, actions: np.ndarray) -> float:
    """The fraction that actions (N, size) explain of the numbers that they command."""
    columns, lag = list(match.observation_columns), round(match.lag)
    if match.how == "target":
        steps = sample.steps(lag, most=STEPS)
        error = np.mean((actions[steps] - sample.x[steps + lag][:, columns]) ** 2, axis=0)
        return 1 - float(error.sum() / max(float(actions[steps].var(0).sum()), 1e-150))
    steps = sample.steps(WINDOW, before=lag, most=STEPS)
    total = np.concatenate([np.zeros((1, len(columns))), np.cumsum(actions, 0)])
    moved = sample.x[steps + WINDOW][:, columns] - sample.x[steps][:, columns]
    fast = _fast(moved)
    return _explained((total[steps - lag + WINDOW] - total[steps - lag])[fast], moved[fast])[0]


def moved_as_commanded(sample: Sample, match: Match, columns: list[int], of: list[int]) -> float:
    """The fraction that a displacement explains of the motion of some columns while others move."""
    commanded, steps = displacement_sums(sample, round(match.lag), WINDOW)
    if len(steps) < 16:
        return 0.0
    size = np.linalg.norm(sample.x[steps + WINDOW][:, of] - sample.x[steps][:, of], axis=1)
    fast = size > max(0.3 * float(np.quantile(size, 0.99)), 1e-12)
    moved = sample.x[steps + WINDOW][:, columns] - sample.x[steps][:, columns]
    return _explained(commanded[fast][:, list(match.action_columns)].ravel(), moved[fast].ravel())[0]


def _fast(moved: np.ndarray) -> np.ndarray:
    """Where a number moves at all: one that is blocked does not follow its commands."""
    return np.abs(moved) > np.maximum(0.1 * np.quantile(np.abs(moved), 0.99, axis=0), 1e-12)


def _displacements(sample: Sample, free: np.ndarray, free_actions: np.ndarray) -> list[Match]:
    """Actions that are future changes of a number, each run with one scale and one delay."""
    best = np.zeros((sample.a.shape[1], sample.x.shape[1]))
    scales = np.zeros_like(best)
    if not (free.any() and free_actions.any()):
        return []
    for window in (1, WINDOW):
        for lag in range(LAGS):
            commanded, steps = displacement_sums(sample, lag, window)
            if len(steps) < 16:
                break
            moved = sample.x[steps + window] - sample.x[steps]
            moved *= _fast(moved)
            product = commanded.T @ moved
            energy = np.maximum((commanded**2).T @ (moved != 0), 1e-150)
            r2 = product * np.abs(product) / np.maximum(energy * np.sum(moved**2, 0), 1e-150)
            better = r2 > best + 1e-6
            best = np.where(better, r2, best)
            scales = np.where(better, product / energy, scales)
    best[:, ~free], best[~free_actions] = 0.0, 0.0
    return _runs_of_one_scale(sample, best, scales)


def _runs_of_one_scale(sample: Sample, best: np.ndarray, scales: np.ndarray) -> list[Match]:
    """Runs, the longest and best first; a run's numbers have one unit, so similar scales."""
    n_a, n_o = best.shape
    candidates = []
    for j, i in np.argwhere(best > EACH):
        size = 1
        while j + size < n_a and i + size < n_o:
            own = np.arange(size + 1)
            each, scale = best[j + own, i + own], scales[j + own, i + own]
            # Among the first three, one that hardly moves may look slower; a fourth has to match the others.
            spread, weakest = (5.0, EACH) if size < 3 else (2.0, max(EACH, 0.5 * each[:-1].mean()))
            if each[-1] <= weakest or scale.max() > spread * scale.min():
                break
            size += 1
        if size > 1:
            own = np.arange(size)
            candidates.append((float(best[j + own, i + own].sum()), int(j), int(i), size))
    matches = []
    for _, j, i, size in sorted(candidates, reverse=True)[:CANDIDATES]:
        r2, fit, lag, overall = _common(sample, j, i, size)
        if r2 > (TOGETHER if size > 2 else PAIR):
            each = tuple(float(r) for r in best[j + np.arange(size), i + np.arange(size)])
            further = _further(best > EACH, j, i, size)
            others = [k for k in range(n_a) if not j <= k < j + size and best[k].max() > PAIR]
            astray = sum(1 / 3 < scales[k, best[k].argmax()] / max(fit, 1e-150) < 3 for k in others)
            matches.append(Match("displacement", j, i, size, fit, lag, r2, each, overall, further, astray))
    chosen: list[Match] = []
    for match in sorted(matches, key=lambda m: -m.overall * m.size):
        apart = all(
            set(match.action_columns).isdisjoint(other.action_columns)
            and set(match.observation_columns).isdisjoint(other.observation_columns)
            for other in chosen
        )
        if apart and is_significant(sample, match):
            chosen.append(match)
    return chosen


def _common(sample: Sample, j: int, i: int, size: int) -> tuple[float, float, float, float]:
    """How well one scale and one delay explain a run's motion.

    Returns:
        The fraction explained while it moves, the scale, the delay, and the fraction explained of all motion.
    """
    found: list[tuple[float, float, float]] = []
    for window in (1, WINDOW):
        fits = []
        for lag in range(LAGS):
            commanded, steps = displacement_sums(sample, lag, window)
            if len(steps) < 16:
                break
            moved = sample.x[steps + window, i : i + size] - sample.x[steps, i : i + size]
            own, fast = commanded[:, j : j + size], _fast(moved)
            r2, scale = _explained(own[fast], moved[fast])
            fits.append((r2, scale, _explained(own.ravel(), moved.ravel())[0]))
        if window == 1 and fits and fits[0][0] > EXACT:
            return fits[0][0], fits[0][1], 0.0, fits[0][2]
        if fits and (not found or max(fits)[0] > max(found)[0]):
            found = fits
    if not found:
        return 0.0, 0.0, 0.0, 0.0
    top = int(np.argmax([r2 for r2, *_ in found]))
    r2, scale, _ = found[top]
    scale, lag = _response(sample, j, i, size) or (scale, float(top))
    return r2, scale, lag, max(overall for *_, overall in found)


def _response(sample: Sample, j: int, i: int, size: int) -> tuple[float, float] | None:
    """The sum and the mean delay of the response of numbers to a command, by least squares.

    None if the data do not determine it: commands that change slowly, or a response that is not mainly forward.
    """
    steps = sample.steps(1, before=LAGS, most=STEPS)
    if len(steps) < 10 * LAGS:
        return None
    moved = sample.x[steps + 1, i : i + size] - sample.x[steps, i : i + size]
    fast = _fast(moved)
    commanded = np.stack([sample.a[steps - k, j : j + size][fast] for k in range(LAGS + 1)], 1)
    normal = np.einsum("ni,nj->ij", commanded, commanded)
    if not np.trace(normal) > 0:  # nothing moved, or nothing was commanded while it did
        return None
    normal += 1e-3 * np.trace(normal) / len(normal) * np.eye(len(normal))
    weights = np.linalg.solve(normal, np.einsum("ni,n->i", commanded, moved[fast]))
    total = float(weights.sum())
    if total <= 0 or weights.min() < -0.25 * weights.max():
        return None
    lag = float(weights @ np.arange(len(weights))) / total
    return (total, lag) if 0 <= lag <= LAGS else None


def _explained(commanded: np.ndarray, moved: np.ndarray) -> tuple[float, float]:
    """The fraction of a motion that is proportional to the command, negative if opposed to it; and the factor."""
    product, energy = dot(commanded, moved), max(dot(commanded, commanded), 1e-150)
    return product * abs(product) / (energy * max(dot(moved, moved), 1e-150)), product / energy
