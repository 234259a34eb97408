"""Where: which episodes of a fleet are meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from reprlib import repr as brief
from typing import Any

from closedform.errors import ConfigError

LABELS = ("task", "site", "robot", "outcome")
OUTCOMES = ("success", "failure", "unknown")
_LONGEST = 500  # characters of a label


@dataclass(frozen=True)
class Where:
    """A choice of episodes; what is None does not matter.

    Attributes:
        task, site, robot: labels that the episodes were pushed with.
        outcome: `success`, `failure` or `unknown`.
        since, until: the time of episodes, both ends included, as the clock of whoever pushed them said.
    """

    task: str | None = None
    site: str | None = None
    robot: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self):
        for name in LABELS:
            value = getattr(self, name)
            if value is not None:
                check_label(name, value)
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_time(name, value))
        if self.since is not None and self.until is not None and self.since > self.until:
            raise ConfigError(f"expected since before until, found {self.since} and {self.until}")

    @classmethod
    def of(cls, value: Where | Mapping[str, Any] | None) -> Where:
        """A choice from a dictionary of the attributes, or of all episodes from None."""
        if isinstance(value, Where):
            return value
        known = [field.name for field in fields(cls)]
        if not isinstance(value, Mapping | None) or not set(value or ()) <= set(known):
            raise ConfigError(f"where: expected some of {', '.join(known)}, found {brief(value)}")
        return cls(**(value or {}))

    def sql(self) -> str:
        """The choice as a condition on the columns of the table; empty if it chooses all."""
        parts = [f"{name} = {quoted(getattr(self, name))}" for name in LABELS if getattr(self, name) is not None]
        for name, sign in (("since", ">="), ("until", "<=")):
            value = getattr(self, name)
            if value is not None:
                parts.append(f"time {sign} {microseconds(value)}")
        return " AND ".join(parts)

    def to_json(self) -> dict[str, str]:
        """The attributes that matter, as text."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.to_json().items()) or "all"


def check_label(name: str, value: Any) -> str:
    """Refuses labels that are not one short line of text, and unknown outcomes."""
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise ConfigError(f"{name}: expected one line of at most {_LONGEST} characters, found {brief(value)}")
    if name == "outcome" and value not in OUTCOMES:
        raise ConfigError(f"outcome: expected one of {', '.join(OUTCOMES)}, found {brief(value)}")
    return value


def as_time(name: str, value: Any) -> datetime:
    """A time with its zone from a datetime or ISO 8601 text; UTC if it does not say."""
    try:
        value = datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(value, datetime):
            raise ValueError(value)
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{name}: expected a time such as 2026-01-31T12:00:00Z, found {brief(value)}") from error


def microseconds(time: datetime) -> int:
    """Microseconds since 1970, which is how the table keeps a time."""
    return round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)


def quoted(text: str) -> str:
    """Text as a literal of SQL, whose only special character is the quote."""
    return "'" + text.replace("'", "''") + "'"
