"""ServeConfig: where and to whom a policy is served."""

from __future__ import annotations

import contextlib
import ipaddress
from dataclasses import dataclass, field

from closedform.errors import ConfigError
from closedform.provenance import n_cores


@dataclass(frozen=True)
class ServeConfig:
    """Where and to whom a policy is served.

    Attributes:
        host: the address to listen on; `0.0.0.0` for all.
        port: 0 for any free one.
        token: what clients have to send; None to serve everybody.
        insecure: whether everybody may be served beyond this machine.
        max_megabytes: the largest message that is accepted, in units of 2**20 bytes.
        n_threads: how many plans are made at once.
        grace: seconds that requests under way are given when the server stops.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = field(default=None, repr=False)
    insecure: bool = False
    max_megabytes: int = 16
    n_threads: int = field(default_factory=n_cores)
    grace: float = 5.0

    def __post_init__(self):
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"port: expected a number from 0 to 65535, found {self.port}")
        if not 1 <= self.max_megabytes <= 2048:
            raise ConfigError(f"max_megabytes: expected a number from 1 to 2048, found {self.max_megabytes}")
        if not 1 <= self.n_threads <= 1024:
            raise ConfigError(f"n_threads: expected a number from 1 to 1024, found {self.n_threads}")
        if not 0 <= self.grace < 3600:
            raise ConfigError(f"grace: expected from 0 to 3600 seconds, found {self.grace}")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and self.token.strip()):
            raise ConfigError("token: expected printable ASCII characters, found others or none")
        if not self.host or not self.host.isprintable():
            raise ConfigError(f"host: expected an address, found {self.host!r}")
        if self.token is None and not (self.insecure or self._is_local()):
            raise ConfigError(
                f"host: expected a --token beyond this machine, found none: all who reach {self.host} could ask "
                "for actions; where that is meant, add --insecure"
            )

    def _is_local(self) -> bool:
        """Whether only this machine reaches the address."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"
