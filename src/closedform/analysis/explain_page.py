"""The HTML page of `closedform explain`: a rollout, or one observation, with the demonstrations behind its plans."""

from __future__ import annotations

import html
from typing import Any

import numpy as np

from closedform.analysis.explain import Explanation
from closedform.analysis.html_page import details_of, page_of
from closedform.analysis.replay import pictured_demos, replay, replay_plan
from closedform.analysis.stage import Stage
from closedform.evaluation.environment import Environment
from closedform.evaluation.rollout import Rollout
from closedform.evaluation.video import film_url
from closedform.figures import embedded
from closedform.policies.demonstration_policy import DemonstrationPolicy

_FILM_BYTES = 5_000_000


def explanation_page(
    explanation: Explanation,
    policy: DemonstrationPolicy[Any],
    stage: Stage,
    picture: bytes,
    title: str,
    *,
    environment: Environment | None = None,
    rollout: Rollout | None = None,
    frames: list[np.ndarray] | None = None,
) -> str:
    """A self-contained page.

    Args:
        explanation: of one plan.
        policy: the policy that made it.
        stage: how the scene is shown.
        picture: the figure of the explanation, a PNG file.
        title: of the page.
        environment, rollout: that the plan is part of, if any; all of it can be looked at.
        frames: images of every step of the rollout, if the stage is a film.
    """
    window = np.repeat(explanation.observation[None], policy.config.n_obs_steps, axis=0)
    if rollout is None or environment is None:
        shown = replay_plan(explanation.plan, policy, window, stage, explanation.usual)
        seen, rate = [window], 1.0
        lead = "The plan for one observation, and the demonstrations that it comes from."
    else:
        shown = replay(rollout, policy, stage, explanation.familiarity)
        seen, rate = [rollout.observations], environment.rate
        shown |= {"film": film_url(frames, rate, _FILM_BYTES)} if frames else {}
        lead = (
            "One episode: move the slider to see the plan at any step, and the demonstrations that it comes from. It "
            f"begins at step {explanation.step}, which the figure below explains."
        )
    group = {
        "title": "",
        "stage": stage.to_json(seen),
        "rate": rate,
        "n_execute": explanation.n_execute,
        "demos": pictured_demos(policy, [shown], stage),
        "rollouts": [shown],
        "start": explanation.step if rollout is not None else 0,
    }
    figure = f'<img class="picture" alt="the plan at step {explanation.step}" src="{embedded(picture, "image/png")}">'
    below = details_of(f"How the plan at step {explanation.step} was made: a figure", figure)
    body = f'<h1>{html.escape(title)}</h1><p class="lead">{lead}</p><div class="inline"></div>{below}'
    return page_of(title, body.replace("<details>", "<details open>"), [group])
