"""Study: one evaluation that can be interrupted, resumed and reproduced."""

from __future__ import annotations

import sys
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from closedform import provenance
from closedform.demos.catalog import CATALOG
from closedform.demos.chosen_layouts import choose_layouts, parse_layouts
from closedform.demos.demos import Demos
from closedform.demos.inference.inferred import InferredLayouts
from closedform.demos.load import load_demos
from closedform.device import check_device
from closedform.errors import ConfigError, LoadError, SaveError
from closedform.evaluation.environment import (
    EnvironmentSpec,
    ReadsDemos,
    check_fit,
    check_seed,
    check_trusted,
)
from closedform.evaluation.environment_pool import EnvironmentPool
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.episodes_job import Describe
from closedform.evaluation.evaluate import evaluate
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.notes import policy_notes, result_notes
from closedform.evaluation.origin import Origin
from closedform.evaluation.pool import Workers
from closedform.evaluation.processes import as_workers
from closedform.evaluation.subject import Subject
from closedform.files import check_writable
from closedform.geometry.layout import Layout
from closedform.policies.choice import CHOICES, make_policy
from closedform.policies.folder import SHIPPED
from closedform.policies.policy import Policy
from closedform.policies.saving import POLICIES, load_policy
from closedform.progress import progress_bar

_ANOTHER = "choose another name, or remove it (`eval --overwrite` replaces it)"
SAVE_EVERY = 10.0  # seconds between saves of partial results


@dataclass(frozen=True)
class Study:
    """A policy, an environment and the seeds of episodes.

    Attributes:
        environments: the environments to evaluate in, built when episodes run.
        policy: the policy to evaluate.
        subject: their description in the results file.
        describe: returns additional fields for the result of each episode.
        inferred: the layouts inferred from the demonstrations, if any.
    """

    environments: EnvironmentPool
    policy: Policy[Any]
    subject: Subject
    describe: Describe | None = None
    inferred: InferredLayouts | None = None

    @classmethod
    def make(
        cls,
        env: str,
        demos: str | None,
        policy: str,
        settings: Sequence[str] = (),
        *,
        seed: int = 100000,
        n_episodes: int = 50,
        device: str = "cpu",
        layout: str | None = None,
    ) -> Study:
        """Loads the policy and the environment, and checks that they match.

        Args:
            env: name of the environment; see `make_environment`.
            demos: path or name of demonstrations; None for a saved policy.
            policy: see `make_policy`.
            settings: parameters to override, as `name=value`.
            seed, n_episodes: the seeds are seed, seed + 1, ...
            device: the device of the policy's network, if it has one.
            layout: of the demonstrations; see `choose_layouts`.
        """
        options: dict[str, Any] = {"seed": seed, "n_episodes": n_episodes, "device": device, "layout": layout}
        return cls.make_each(env, demos, policy, [{}], settings, **options)[0]

    @classmethod
    def make_each(
        cls,
        env: str,
        demos: str | None,
        policy: str,
        parameters: Sequence[Mapping[str, Any]],
        settings: Sequence[str] = (),
        *,
        seed: int = 100000,
        n_episodes: int = 50,
        device: str = "cpu",
        layout: str | None = None,
    ) -> list[Study]:
        """The same for several sets of parameters, each by name; environments and demonstrations are shared."""
        check_seed(seed, n_episodes)
        check_device(device)
        environments = EnvironmentPool(env)
        spec, source, declared, inferred = environments.spec, None, None, None
        if demos is not None:
            declared = demos_for(spec, demos)
            source, inferred = choose_layouts(declared, layout)
            check_fit(spec, source, f"the dataset {demos!r}" if demos in CATALOG else demos)
        elif layout is not None:
            raise ConfigError(f"layout: expected none for a saved policy, which has its own, found {layout!r}")
        elif policy in CHOICES:
            raise ConfigError(f"the policy {policy!r} needs demonstrations: expected --demos, found none")
        studies = []
        for own in parameters:
            made = make_policy(policy, source, settings, parameters=own).to(device)
            if source is None:  # otherwise the demonstrations were checked
                check_fit(spec, made, f"the policy {policy!r}")
            subject = _subject(env, made, policy, demos, seed, n_episodes)
            if source is not None and declared is not None and _layouts(source) != _layouts(declared):
                subject = replace(subject, demos={**subject.demos, "layouts": _layouts(source)})
            studies.append(cls(environments, made, subject, inferred=inferred))
        return studies

    @classmethod
    def of_policy(
        cls,
        env: str,
        policy: Policy[Any],
        name: str,
        demos: str | None = None,
        *,
        seed: int = 100000,
        n_episodes: int = 50,
        describe: Describe | None = None,
    ) -> Study:
        """The study of an existing policy.

        Args:
            env: name of the environment; see `make_environment`.
            policy: the policy.
            name: its name in the results.
            demos: the name of its demonstrations in the results.
            seed, n_episodes: the seeds are seed, seed + 1, ...
            describe: returns additional fields for the result of each episode; must be picklable.
        """
        check_seed(seed, n_episodes)
        environments = EnvironmentPool(env)
        check_fit(environments.spec, policy, f"the policy {name!r}")
        return cls(environments, policy, _subject(env, policy, name, demos, seed, n_episodes), describe)

    @classmethod
    def of(cls, result: EvaluationResult, env: str | None = None) -> Study:
        """Recreates the study that a results file came from.

        The file is not trusted. Its environment is created only if it is built in, installed or named by the user. Its
        demonstrations and policy are read (which runs no code) only if they are files or folders, and refused if they
        are not those that were evaluated.

        Args:
            result: of the study.
            env: the environment named by the user, required for `package.module:function`.
        """
        subject = result.subject
        check_trusted(subject.env, env)
        environments = EnvironmentPool(subject.env)
        demos = subject.demos.get("name")
        try:
            if demos is None:
                policy = load_policy(_there(subject.policy["name"], SHIPPED))
            else:
                source = demos_for(environments.spec, _there(demos, CATALOG))
                known = subject.demos.get("layouts")
                layouts = parse_layouts(known, "the layouts of the results") if known else ()
                source = source.with_layouts(*layouts)
                policy_class = POLICIES[subject.policy["class"]]
                config = policy_class.config_class.preset(**subject.parameters)
                policy = policy_class(source, config=config)
        except (KeyError, TypeError) as error:
            raise LoadError(f"expected results that name their policy, found {error!r}") from error
        fingerprint = {"name": demos, **policy.fingerprint()}
        found = replace(
            subject,
            demos={**{key: subject.demos[key] for key in ("layouts",) if key in subject.demos}, **fingerprint},
            policy={**subject.policy, "class": type(policy).__name__},
            parameters=asdict(policy.config),
        )
        for key in ("demos", "policy", "parameters"):
            if getattr(found, key) != getattr(subject, key):
                raise LoadError(f"expected the policy that was evaluated, found different {key} under its name")
        return cls(environments, policy, subject)

    @property
    def env(self) -> str:
        """The environment's name."""
        return self.subject.env

    @property
    def n_episodes(self) -> int:
        """The number of episodes."""
        return self.subject.n_episodes

    def run(
        self,
        path: Path | None = None,
        workers: int | Workers | None = None,
        name: str = "",
        *,
        overwrite: bool = False,
    ) -> EvaluationResult:
        """Runs the episodes, shows a progress bar and returns the results.

        Partial results are written every few seconds, and also on an error or interrupt. A file with a part of this
        study is resumed; if it is complete, it is returned.

        Args:
            path: the results file; None to write none.
            workers: the number of processes, one per core by default; or `Ray(...)`.
            name: the label of the progress bar.
            overwrite: whether results that the file already has are replaced.
        """
        if path:
            check_writable(path)
        before = None if overwrite else self.before(path)
        if before is not None and before.complete:
            return before
        episodes = list(before.episodes) if before else []
        todo = sorted(set(self.subject.seeds) - {episode.seed for episode in episodes})
        results = evaluate(self.policy, self.environments, todo, workers=as_workers(workers), describe=self.describe)
        saved = time.monotonic()
        try:
            with progress_bar(total=self.n_episodes, initial=len(episodes), desc=name or None, leave=False) as bar:
                for episode in results:
                    episodes.append(episode)
                    bar.update()
                    score = sum(one.score for one in episodes) / len(episodes)
                    success = sum(one.success for one in episodes) / len(episodes)
                    bar.set_postfix_str(f"score {score:.3f}, success {success:.2f}")
                    if path and time.monotonic() - saved > SAVE_EVERY:
                        self.result(episodes).save(path)
                        saved = time.monotonic()
        except BaseException:
            if episodes:
                self._keep(episodes, path)
            raise
        if path is None:
            return self.result(episodes)
        self.result(episodes).save(path)
        return EvaluationResult.load(path)

    def result(self, episodes: Sequence[EpisodeResult]) -> EvaluationResult:
        """The result of these episodes, at least one."""
        origin = Origin.here(n_together=min(self.policy.n_together, self.n_episodes))
        notes = [*self._policy_notes, *result_notes(episodes)]
        result = EvaluationResult.of(self.subject, episodes, origin)
        return replace(result, extra={"notes": notes}) if notes else result

    @cached_property
    def _policy_notes(self) -> list[str]:
        return policy_notes(self.policy)

    def before(self, path: Path | None) -> EvaluationResult | None:
        """The part of this study that a file already contains, or all of it."""
        if path is None or not path.exists():
            return None
        before = EvaluationResult.load(path)
        if before.subject != self.subject:
            raise LoadError(
                f"{path}: expected no file, or a part of this evaluation, found another evaluation (policy "
                f"{before.subject.policy['name']!r}, {before.subject.n_episodes} episodes from seed "
                f"{before.subject.seed}); {_ANOTHER}"
            )
        made_by, now = (before.origin.commit, before.origin.versions.get("closedform")), self._made_by()
        if not before.complete and made_by != now:
            raise LoadError(
                f"{path}: expected a part of an evaluation of this code, commit {now[0]}, found commit "
                f"{made_by[0]}, version {made_by[1]}; {_ANOTHER}"
            )
        return before

    @staticmethod
    def _made_by() -> tuple[str | None, str | None]:
        return provenance.commit(), provenance.versions().get("closedform")  # None if not installed

    def _keep(self, episodes: Sequence[EpisodeResult], path: Path | None) -> None:
        result = self.result(episodes)
        said = f"stopped after {len(episodes)} of {self.n_episodes} episodes"
        try:
            if path:
                result.save(path)
                print(f"{said}, which are in {path}; run the same command to resume", file=sys.stderr)
                return
        except SaveError:  # the error that stopped the evaluation is reported in any case
            said += f" ({path} could not be written)"
        print(f"{said}: score {result.score.mean:.3f}, success {result.success.mean:.3f}", file=sys.stderr)


def _there(name: str, known: Container[str]) -> str:
    """A name from a results file, if it is a file or folder; reading from a terminal or pipe could wait forever."""
    path = Path(name)
    if name not in known and not path.is_dir() and not path.is_file():
        raise LoadError(f"{name}: expected the evaluated demonstrations or policy, found no file or folder there")
    return name


def _layouts(demos: Demos) -> dict[str, Any]:
    """The layouts of demonstrations for a results file."""
    return {"observation": demos.observation_layout.to_json(), "action": demos.action_layout.to_json()}


def _subject(env: str, policy: Policy[Any], name: str, demos: str | None, seed: int, n_episodes: int) -> Subject:
    return Subject(
        env=env,
        demos={"name": demos, **policy.fingerprint()},
        policy={"name": name, "class": type(policy).__name__},
        parameters=asdict(policy.config),
        seed=seed,
        n_episodes=n_episodes,
    )


def demos_for(environment: EnvironmentSpec, source: str) -> Demos:
    """Reads demonstrations; layouts missing in their file are those of the environment."""
    demos = environment.read(source) if isinstance(environment, ReadsDemos) else load_demos(source)
    check_fit(environment, demos, f"the dataset {source!r}" if source in CATALOG else source)
    observations, actions = demos.observation_layout, demos.action_layout
    if observations == Layout.plain(observations.width):
        observations = environment.observation_layout
    if actions == Layout.plain(actions.width):
        actions = environment.action_layout
    known = (observations, actions) != (Layout.plain(observations.width), Layout.plain(actions.width))
    return demos.with_layouts(observations, actions) if known else demos
