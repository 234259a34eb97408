"""Commands on policies: `fit`, `index`, `tune`, `explain` and `info`."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from closedform import ClosedFormConfig, ClosedFormPolicy, Demos, Policy, load_demos, load_policy, streams
from closedform.cli.working import Working
from closedform.demos.options import ChoosingLayouts, DemosName, OptionalDemosName, Output, Reading, progress_bar
from closedform.device import limit_threads
from closedform.errors import ConfigError
from closedform.figures import pyplot
from closedform.files import check_writable, write_file
from closedform.policies.choice import make_policy, parse_settings, write_config
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.saving import verify
from closedform.registry import registered

if TYPE_CHECKING:
    from closedform.evaluation.environment import Renders


PolicyName = Annotated[str, arg(metavar="POLICY")]
EnvName = Annotated[str, arg(metavar="ENV")]
OptionalEnvName = Annotated[str | None, arg(metavar="ENV")]


@dataclass(frozen=True, kw_only=True)
class Choosing:
    """The choice of a policy."""

    policy: PolicyName = "default"
    """default, paper, 1nn, regression, vinn, a file written by `tune`, a saved policy's folder, a fleet as in
    docs/fleet.md, or pusht-dit or pusht-dit-left."""
    set: UseAppendAction[Annotated[tuple[tuple[str, ...], ...], arg(metavar="NAME=VALUE ...")]] = ()
    """Parameters to override."""

    @property
    def settings(self) -> tuple[str, ...]:
        """All overrides."""
        if any(not group for group in self.set):
            raise ConfigError("--set: expected parameter=value, found nothing")
        return tuple(setting for group in self.set for setting in group)

    def make(self, demos: Demos | None) -> Policy[Any]:
        """Builds the policy."""
        if self.is_opened(self.policy):
            if demos is not None:
                raise ConfigError(f"{self.policy}: expected no demonstrations, since the fleet has them, found some")
            return self.open_policy(self.policy)
        policy = make_policy(self.policy, demos, self.settings)
        limit_threads(1)
        return policy

    @staticmethod
    def is_opened(source: str) -> bool:
        """Whether it is KIND:PLACE, such as a fleet, of a kind in the group `closedform.policies` of entry points."""
        kind, colon, _ = source.partition(":")
        return bool(colon) and kind in registered("closedform.policies")

    def open_policy(self, source: str) -> Policy[Any]:
        """Opens a policy that its place has the demonstrations of."""
        opened = registered("closedform.policies")[source.partition(":")[0]].load()
        with progress_bar() as say:
            return opened(source, parse_settings(ClosedFormConfig, self.settings), say)


@dataclass(frozen=True, kw_only=True)
class Fit(Reading, Choosing, ChoosingLayouts):
    """Build a policy from demonstrations and save it; nothing is trained."""

    demos: Positional[DemosName]
    """A path, or the name of a dataset (`closedform data list`)."""
    output: Output
    """Folder for the policy."""

    def run(self) -> None:
        """Builds and saves the policy, and prints notes on it."""
        from closedform.evaluation.notes import policy_notes

        demos = self.settle(self.read(self.demos))
        start = time.perf_counter()
        with progress_bar() as say:
            policy = make_policy(self.policy, demos, self.settings, progress=say)
        took = 1e3 * (time.perf_counter() - start)
        policy.save(self.output)
        print(f"{policy} made in {took:.0f} ms: {self.output}")
        for note in policy_notes(policy):
            streams.complain(f"note: {note}")


@dataclass(frozen=True, kw_only=True)
class IndexCommand(Reading, Choosing, ChoosingLayouts):
    """Index any number of demonstrations with faiss and save a memory-mapped policy."""

    demos: Positional[DemosName]
    """A path, or the name of a dataset (`closedform data list`)."""
    output: Output
    """Folder for the policy."""
    recall: float = 0.95
    """Recall: the fraction of the neighbors with weight that the search must find; the search width follows from it."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Builds the index, measures its recall against exact search, and saves the policy."""
        given = [name for name in ("index", "recall") for setting in self.settings if setting.startswith(f"{name}=")]
        if given:
            raise ConfigError(
                f"--set: expected no {given[0]}, which this command sets itself (see --recall), found one"
            )
        demos = self.settle(self.read(self.demos))
        with progress_bar() as say:
            settings = (*self.settings, "index=faiss", f"recall={self.recall}")
            policy = make_policy(self.policy, demos, settings, progress=say)
        assert isinstance(policy, DemonstrationPolicy)  # since demonstrations were given
        recall = policy.index_recall
        assert recall is not None
        policy.save(self.output)
        if self.json:
            print(json.dumps({"windows": policy.n_windows, **asdict(recall)}, indent=2))
            return
        print(f"{policy} indexed in {recall.seconds:.1f} s: {recall.n_probes} of {recall.n_lists} lists are searched")
        print(
            f"recall {recall.weighty:.3f} of the neighbors with weight (target {recall.target}), "
            f"{recall.all:.3f} of all neighbors, on {recall.n_queries} leave-one-out queries: {self.output}"
        )
        if recall.n_probes == recall.n_lists:
            print("all lists are searched, so exact search would be as fast: are many observations identical?")


@dataclass(frozen=True, kw_only=True)
class Tune(Reading, ChoosingLayouts, Working):
    """Choose parameters from the demonstrations alone, by leave-one-out prediction."""

    demos: Positional[DemosName]
    """A path, or the name of a dataset (`closedform data list`)."""
    preset: Literal["default", "paper"] = "default"
    """The initial configuration; parameters that are not tuned keep its values."""
    output: Output = Path("tuned.json")
    """The parameter file to write, which `eval`, `fit` and `explain` accept as --policy."""

    def run(self) -> None:
        """Tries configurations, prints the changes and writes the file."""
        from closedform.analysis.tune import GRID, tune

        where = self.where
        check_writable(self.output)
        demos = self.settle(self.read(self.demos))
        with progress_bar() as say:
            tuning = tune(demos, ClosedFormConfig.preset(self.preset, demos), workers=where, progress=say)
        best, start = tuning.best, tuning.start
        for name in GRID:
            before, after = getattr(start.config, name), getattr(best.config, name)
            print(f"{name:16} {after}{'' if before == after else f'   (was {before})'}")
        print(f"leave-one-out error {start.error:.4f} -> {best.error:.4f}, {len(tuning.trials)} configurations tried")
        write_config(
            best.config, ClosedFormPolicy, self.output, tuned_on=self.demos, error=best.error, error_before=start.error
        )
        print(f"parameters: {self.output}")


@dataclass(frozen=True, kw_only=True)
class Explain(Choosing, ChoosingLayouts):
    """Explain a policy's plans in a rollout, or for one observation: an interactive page and a figure."""

    demos: OptionalDemosName = None
    """The demonstrations: a path, or the name of a dataset; not needed for a saved policy."""
    observation: Annotated[tuple[float, ...], arg(metavar="NUMBERS")] = ()
    """The numbers of the observation to explain."""
    env: OptionalEnvName = None
    """Alternatively, the environment of a rollout; the scene is then drawn as well."""
    seed: int = 100000
    """Seed of the rollout, or of the plan."""
    step: Annotated[int | None, arg(metavar="STEP")] = None
    """Step of the rollout; the first plan at or after this step is explained. By default the one that raised the score
    most, before the last few."""
    false_alarm_rate: float = 0.01
    """False-alarm rate: the fraction of familiar observations that may be called out of range."""
    output: Output = Path("explanation.png")
    """The PNG file to write; the page is written beside it as .html."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Prints the demonstrations behind the plan, draws the figure and writes the page."""
        from closedform.analysis.explain import eventful_step, explain, explain_rollout
        from closedform.analysis.explain_figure import draw_explanation
        from closedform.analysis.explain_page import explanation_page
        from closedform.analysis.familiarity import measure_familiarity
        from closedform.analysis.stage import Stage
        from closedform.evaluation.environment import Renders, Scene, check_fit, check_seed, make_environment
        from closedform.evaluation.rollout import roll_out
        from closedform.evaluation.study import demos_for
        from closedform.evaluation.video import require_av

        check_seed(self.seed)
        check_writable(self.output)
        page = self.output.with_suffix(".html")
        if page == self.output:
            raise ConfigError(
                f"output: expected the name of a PNG file, found {self.output}; the page is written beside it"
            )
        check_writable(page)
        pyplot()  # fails now rather than after the work
        if self.step is not None and self.step < 0:
            raise ConfigError(f"step: expected 0 or more, found {self.step}")
        if not self.observation and self.env is None:
            raise ConfigError("expected --observation NUMBERS, or --env NAME with --seed and --step, found neither")
        environment = make_environment(self.env) if self.env else None
        if self.demos is None:
            demos = None
        else:
            demos = self.settle(demos_for(environment, self.demos) if environment else load_demos(self.demos))
        policy = self.make(demos)
        if environment:
            check_fit(environment, policy, f"the policy {self.policy!r}")
        if not isinstance(policy, DemonstrationPolicy):
            raise ConfigError(
                f"{self.policy}: expected a policy made of demonstrations, since only those can be explained, found "
                f"{type(policy).__name__}"
            )
        if self.observation:
            policy.check_observations(np.array([self.observation]))
        elif environment and self.step is not None and self.step >= environment.max_steps:
            raise ConfigError(
                f"step: expected less than the episode length, {environment.max_steps}, found {self.step}"
            )
        stage = Stage(policy.observation_layout, policy.action_layout, environment)
        rollout, frames = None, []
        if stage.kind == "film":
            require_av()  # fails now rather than after the work
        with progress_bar() as say:
            say("leave-one-out distances", 0.0)
            familiarity = measure_familiarity(policy, self.false_alarm_rate)
            if self.observation:
                explanation = explain(policy, self.observation, familiarity, seed=self.seed)
                title = "The plan for an observation"
            else:
                assert environment is not None
                say("the episode", 0.3)
                shown = environment if stage.kind == "film" and isinstance(environment, Renders) else None
                watch = partial(_keep_picture, shown, frames) if shown else None
                rollout = roll_out(environment, policy, self.seed, watch)
                say("the plan", 0.7)
                step = eventful_step(rollout) if self.step is None else self.step
                explanation = explain_rollout(environment, policy, familiarity, seed=self.seed, step=step)
                title = f"{self.env}, seed {self.seed}"
            say("the figure", 0.8)
            scene = environment if isinstance(environment, Scene) else None
            told = title if rollout is None else f"{title}, step {explanation.step}"
            picture = draw_explanation(explanation, policy.action_layout, scene, told)
            say("the page", 0.9)
            text = explanation_page(
                explanation, policy, stage, picture, title, environment=environment, rollout=rollout, frames=frames
            )
            write_file(self.output, picture)
            write_file(page, text)
            say("done", 1.0)
        facts = explanation.to_json()
        if self.json:
            print(json.dumps(facts, indent=2))
            return
        plan = explanation.plan
        if rollout is not None:
            print(f"{title}: the plan at step {explanation.step} of {len(rollout.actions)}")
        usual = explanation.usual
        level = usual.level(plan.distance)
        print(
            f"{level.upper() if facts['alarm'] else level}: distance {plan.distance:.2f}, "
            f"{usual.scale(plan.distance)}; {usual.describe()}"
        )
        holding = f", grasping {plan.held}" if plan.held else ""
        print(
            f"frame {plan.frame}{holding}, effective number of demonstrations {plan.n_effective:.1f}, "
            f"shrinkage {plan.shrinkage:.2f}"
        )
        for row in facts["demonstrations"][:10]:
            print(f"  episode {row['episode']:5}  step {row['step']:5}  weight {row['weight']:.3f}")
        print(f"page: {page}, picture: {self.output}")


def _keep_picture(environment: Renders, frames: list[np.ndarray]) -> None:
    frames.append(environment.render())


@dataclass(frozen=True)
class Info:
    """Describe and verify a saved policy."""

    folder: Positional[PolicyName]
    """Folder of the policy, or the name of one that comes with the package."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Prints the policy's class, demonstrations, layouts and parameters, after verifying its checksums."""
        policy = load_policy(self.folder)
        checked = verify(self.folder)
        made_of = _made_of(policy)
        recall = policy.index_recall if isinstance(policy, DemonstrationPolicy) else None
        parts = {name: _made_of(part) for name, part in getattr(policy, "demonstrations", {}).items()}
        facts: dict[str, Any] = {
            "policy": type(policy).__name__,
            **made_of,
            **({"index": asdict(recall)} if recall else {}),
            **_perceiver(policy),
            **({"parts": parts, "edit": getattr(policy, "parameters", {})} if parts else {}),
            "observation_layout": policy.observation_layout.to_json(),
            "action_layout": policy.action_layout.to_json(),
            "parameters": asdict(policy.config),
            "checked": checked,
        }
        if self.json:
            print(json.dumps(facts, indent=2))
            return
        print(f"{facts['policy']} of {_counts(made_of)}")
        print(f"checked: {checked}")
        if recall:
            print(f"index: faiss, recall {recall.weighty:.3f} of the neighbors with weight")
        if policy.perceiver is not None:
            cameras = ", ".join(f"{name} of {s[1]}x{s[0]}" for name, s in policy.perceiver.shapes.items())
            print(f"takes images: {cameras}, perceived as {policy.perceiver.kind}")
        for name, counts in parts.items():
            print(f"{name}: {_counts(counts)}")
        for name, value in facts.get("edit", {}).items():
            print(f"  {name:18} {value}")
        for name in ("observation_layout", "action_layout"):
            entries = [
                f"{e['body'] or '-'} {e['kind']} ({', '.join([str(e['size']), *filter(None, [e.get('symmetry')])])})"
                for e in facts[name]
            ]
            print(f"{name.replace('_', ' ')}: {', '.join(entries)}")
        for name, value in facts["parameters"].items():
            print(f"  {name:18} {value}")


def _perceiver(policy: Policy[Any]) -> dict[str, Any]:
    if policy.perceiver is None:
        return {}
    cameras = {name: list(shape) for name, shape in policy.perceiver.shapes.items()}
    return {"perceiver": {"kind": policy.perceiver.kind, "cameras": cameras}}


def _made_of(policy: Policy[Any]) -> dict[str, int]:
    if isinstance(policy, DemonstrationPolicy):
        return {"episodes": len(policy.episode_ids), "windows": policy.n_windows}
    return {"weights": policy.n_weights}


def _counts(made_of: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in made_of.items())
