"""The command `studio`: demonstrate with the mouse, let go, and the policy drives."""

from __future__ import annotations

import contextlib
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import arg

from closedform import Demos, Episode, load_demos
from closedform.cli.policy import Choosing, EnvName
from closedform.demos.options import OptionalDemosName
from closedform.errors import ConfigError
from closedform.policies.demonstration_policy import DemonstrationPolicy

if TYPE_CHECKING:
    from closedform.evaluation.environment import Environment
    from closedform.studio import Tape


@dataclass(frozen=True, kw_only=True)
class Studio(Choosing):
    """Open a page to demonstrate with the mouse: let go, and the policy drives from that very state.

    It begins with nothing, with demonstrations (--demos pusht-embedded for those of the package) or with a saved policy
    (--policy FOLDER). Nothing leaves this machine.
    """

    env: EnvName = "pusht"
    """The environment: pusht, a task of robomimic such as lift, or one of your own (package.module:function); see
    docs/studio.md."""
    demos: OptionalDemosName = None
    """The demonstrations to begin with: a path, or the name of a dataset; by default none."""
    record: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Folder to record to, safe against crashes; the episodes in an existing one are there again."""
    seed: int = 0
    """Seed of the first start, counted up for the others. Evaluations use seeds from 100000."""
    host: Annotated[str, arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on. Another machine is better reached through an SSH tunnel than by changing this."""
    port: int = 8400
    """Port of the page; 0 takes any that is free."""
    open: bool = True
    """Whether to open a browser; the address is printed anyway."""

    def run(self) -> None:
        """Loads everything, warms up, and serves the page until it is interrupted."""
        from closedform.evaluation.environment import make_environment
        from closedform.studio import Collection, Pilot, Server, StudioSession, Tape
        from closedform.studio.server import import_uvicorn

        import_uvicorn()
        environment = make_environment(self.env)
        _try_out(self.env, environment)
        template, policy = self._policies(environment)
        with contextlib.ExitStack() as stack:
            tape = None
            if self.record is not None:
                layouts = environment.observation_layout, environment.action_layout
                tape = Tape(self.record, *layouts, environment.rate)
                stack.callback(tape.close)
                policy = _with_recorded(template, policy, tape)
            collection = Collection(
                template, policy, rate=environment.rate, env=self.env, log=None if tape is None else tape.log
            )
            if tape is not None:
                for take, file in zip(reversed(collection.takes), reversed(tape.files), strict=False):
                    take.file = file
            template.agent(seed=0)  # loads compiled code before anybody drives
            template.sample(template.episodes[0].observations[:1], 2, seed=0)
            pilot = Pilot(
                lambda background: StudioSession(
                    environment,
                    collection,
                    tape=tape,
                    seed=self.seed,
                    spare=lambda: make_environment(self.env),
                    background=background,
                )
            )
            stack.callback(pilot.close)
            server = Server(pilot, self.env, host=self.host, port=self.port)
            print(f"studio: {server.address}\nCtrl-C ends it", flush=True)
            server.run(lambda: _open(server.address) if self.open else None)

    def _policies(self, environment: Environment) -> tuple[DemonstrationPolicy[Any], DemonstrationPolicy[Any] | None]:
        """A policy that shows which class and parameters to use, and the one to begin with."""
        from closedform.evaluation.environment import check_fit
        from closedform.policies.choice import CHOICES

        layouts = environment.observation_layout, environment.action_layout
        if self.demos is None and (self.policy in CHOICES or Path(self.policy).is_file()):
            return self._demonstration_policy(_still(environment)), None
        demos = None
        if self.demos is not None:
            demos = load_demos(self.demos)
            check_fit(environment, demos, self.demos)
            demos = demos.with_layouts(*layouts)
        policy = self._demonstration_policy(demos)
        check_fit(environment, policy, self.policy if self.demos is None else self.demos)
        return policy, policy

    def _demonstration_policy(self, demos: Demos | None) -> DemonstrationPolicy[Any]:
        policy = self.make(demos)
        if not isinstance(policy, DemonstrationPolicy):
            raise ConfigError(
                f"the studio adds episodes to the policy: expected one made of demonstrations, found a "
                f"{type(policy).__name__}"
            )
        return policy


def _with_recorded(
    template: DemonstrationPolicy[Any], policy: DemonstrationPolicy[Any] | None, tape: Tape
) -> DemonstrationPolicy[Any] | None:
    """The policy with the episodes that were recorded before."""
    if tape.before is None:
        return policy
    if policy is None:
        return type(template)(tape.before, config=template.config)
    for episode in tape.before:
        policy.add(episode)
    return policy


def _still(environment: Environment) -> Demos:
    """A hand that stays where it is, to warm up with."""
    seen = environment.reset(0)
    layout, actions = environment.observation_layout, environment.action_layout
    held = np.zeros(actions.width)
    steps = 8
    episode = Episode(np.repeat(np.asarray(seen)[None], steps, axis=0), np.repeat(held[None], steps, axis=0))
    return Demos([episode], layout, actions, environment.rate)


def _try_out(env: str, environment: Environment) -> None:
    """Renders and steps a scene that cannot be drawn: fails now rather than later, and loads compiled code.

    This has a thread of its own, since rendering is tied to the thread that began with it.
    """
    from closedform.evaluation.drawing import Draws
    from closedform.evaluation.environment import can_render, make_environment
    from closedform.evaluation.steering import Steers
    from closedform.studio.picture import data_address

    def try_out() -> None:
        other = make_environment(env)
        other.reset(0)
        data_address(can_render(other, env).render())
        other.step(other.action_to(other.hand(), False))  # pyright: ignore[reportAttributeAccessIssue]

    if isinstance(environment, Steers) and not isinstance(environment, Draws):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(try_out).result()


def _open(address: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(address)
