"""Client: asks a policy server for actions, over openpi's protocol."""

from __future__ import annotations

import contextlib
from typing import Any

from closedform.errors import ServeError
from closedform.wire import pack, require, unpack

__all__ = ["Client"]


class Client:
    """A connection to a server that speaks openpi's protocol: `closedform serve`, or openpi's own.

        with Client("ws://127.0.0.1:8000") as client:
            reply = client.infer({"observation": observation})
            reply["actions"], reply["demonstrations"], reply["familiarity"]

    Args:
        address: such as `ws://127.0.0.1:8000`.
        token: what the server was started with.
        session_id: names the robot, so that it can reconnect in the middle of an episode.
        timeout: seconds to wait for the connection and for each reply.

    Attributes:
        metadata: what the server said about its policy.
    """

    def __init__(
        self,
        address: str = "ws://127.0.0.1:8000",
        *,
        token: str | None = None,
        session_id: str | None = None,
        timeout: float = 60.0,
    ):
        connect = require("websockets.sync.client").connect
        self._errors = require("websockets.exceptions")
        self._address, self._session_id, self._timeout = address, session_id, timeout
        headers = {"Authorization": f"Api-Key {token}"} if token else None
        self._closing = contextlib.ExitStack()
        try:
            self._connection = self._closing.enter_context(
                connect(address, compression=None, max_size=None, additional_headers=headers, open_timeout=timeout)
            )
        except self._errors.InvalidStatus as error:
            body = (error.response.body or b"").decode("utf-8", "replace")
            raise ServeError(f"{address}: refused with status {error.response.status_code}: {body}") from error
        except (OSError, self._errors.WebSocketException) as error:
            raise ServeError(f"{address}: cannot connect: {error}") from error
        self.metadata: dict[str, Any] = self._receive()

    def infer(self, observation: Any, **options: Any) -> dict[str, Any]:
        """Asks for a plan.

        Args:
            observation: an array, or a map of the keys that the metadata name.
            options: further keys of the request, such as `executed`.
        """
        named = observation if isinstance(observation, dict) else {"observation": observation}
        return self._ask({**named, **options})

    def reset(self, seed: int | None = None) -> None:
        """Begins a new episode; the same seed gives the same plans."""
        self._ask({"endpoint": "reset"} if seed is None else {"endpoint": "reset", "seed": seed})

    def add(self, observations: Any, actions: Any) -> int:
        """Adds an episode to the policy, if the server was started with `--learn`, and returns its id."""
        return self._ask({"endpoint": "add", "observations": observations, "actions": actions})["episode"]

    def remove(self, episode: int) -> None:
        """Removes an episode that was added, by its id."""
        self._ask({"endpoint": "remove", "episode": episode})

    def close(self) -> None:
        """Closes the connection."""
        self._closing.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        if self._session_id is not None:
            request = {"session_id": self._session_id, **request}
        try:
            self._connection.send(pack(request))
        except self._errors.ConnectionClosed as error:
            raise self._gone(error) from error
        return self._receive()

    def _receive(self) -> Any:
        try:
            message = self._connection.recv(timeout=self._timeout)
        except self._errors.ConnectionClosed as error:
            raise self._gone(error) from error
        except TimeoutError as error:
            self.close()  # the reply would be taken for that of the next request
            raise ServeError(f"{self._address}: expected a reply within {self._timeout} s, found none") from error
        if isinstance(message, str):
            raise ServeError(f"{self._address}: {message}")
        return unpack(message)

    def _gone(self, error: Any) -> ServeError:
        received = error.rcvd
        reason = f"{received.code} {received.reason}".strip() if received else "no reason given"
        return ServeError(f"{self._address}: the server closed the connection: {reason}")
