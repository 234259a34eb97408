"""Elimination: which configurations of a sweep are clearly worse than another, at a known error rate.

Every ordered pair of configurations is a bet against "the first is no better than the second": the capital is
mean_k prod_s (1 + b_k d_s), where d_s is the difference of the two scores in the episode of seed s, in [-1, 1], and b_k
are fixed fractions of the capital. If the first is no better, the expected capital never grows, so it ever reaches c
with a probability of at most 1 / c, whatever the distribution of scores and however often one looks (Ville's
inequality; Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", 2024). With
c = m (m - 1) / alpha for m configurations, the probability that any elimination is wrong is at most alpha.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.errors import ConfigError, DataError

_BETS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9])  # fractions of the capital, for small and large effects


@dataclass(frozen=True)
class Eliminated:
    """A configuration that is clearly worse than another.

    Attributes:
        index: of the configuration.
        by: the index of the one with the strongest evidence against it.
        n_episodes: after how many episodes.
        evidence: the capital of the bet, in units of the capital that is needed.
    """

    index: int
    by: int
    n_episodes: int
    evidence: float


class Elimination:
    """Decides, from paired scores, which configurations to eliminate.

    Args:
        n_configurations: how many configurations there are at the start.
        alpha: the probability, at most, that any configuration is eliminated by one that is not better.
    """

    def __init__(self, n_configurations: int, alpha: float = 0.05):
        if not 0 < alpha < 1:
            raise ConfigError(f"alpha: expected more than 0 and less than 1, found {alpha}")
        self._needed = np.log(max(1, n_configurations * (n_configurations - 1)) / alpha)
        self._log_capital = np.zeros((n_configurations, n_configurations, len(_BETS)))
        self._left = np.ones(n_configurations, bool)
        self._n_episodes = 0
        self.eliminated: list[Eliminated] = []

    @property
    def left(self) -> list[int]:
        """The configurations that have not been eliminated."""
        return np.flatnonzero(self._left).tolist()

    def add(self, scores: np.ndarray) -> list[Eliminated]:
        """Adds the scores of more episodes and returns what is now eliminated.

        Args:
            scores: (configurations left, episodes), from 0 to 1; a column is one seed.
        """
        left = np.flatnonzero(self._left)
        scores = np.asarray(scores, np.float64)
        if not np.all((scores >= 0) & (scores <= 1)):
            raise DataError(
                f"expected scores from 0 to 1, found {scores.min():g} to {scores.max():g}; compare by success instead, "
                "or do not eliminate"
            )
        better = scores[:, None] - scores[None]  # by how much the first is better than the second
        self._log_capital[np.ix_(left, left)] += np.log1p(better[..., None] * _BETS).sum(2)
        self._n_episodes += scores.shape[1]
        capital = np.logaddexp.reduce(self._log_capital, axis=2) - np.log(len(_BETS)) - self._needed
        capital[~self._left] = capital[:, ~self._left] = -np.inf
        np.fill_diagonal(capital, -np.inf)
        now = [
            Eliminated(int(i), int(capital[:, i].argmax()), self._n_episodes, float(np.exp(capital[:, i].max())))
            for i in left
            if capital[:, i].max() >= 0
        ]
        self._left[[one.index for one in now]] = False
        self.eliminated += now
        return now
