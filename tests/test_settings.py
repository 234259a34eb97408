"""Settings: numbers and ranges by name; everything else is refused in one line."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from closedform.errors import ConfigError
from closedform.settings import check_settings, parse_settings


@dataclass(frozen=True)
class Weather:
    wind: tuple[float, float] = (1.0, 2.0)
    rain: float = 0.0


def test_numbers_and_ranges():
    assert parse_settings(Weather, "", "the weather") == Weather()
    assert parse_settings(Weather, "wind=0.5..3, rain=2", "the weather") == Weather((0.5, 3.0), 2.0)
    assert parse_settings(Weather, "wind=4", "the weather") == Weather((4.0, 4.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("snow=1", r"expected a setting of the weather \(wind, rain\) and its value, found 'snow=1'"),
        ("rain", "found 'rain'"),
        ("rain=much", "the weather's rain: expected a number, found 'much'"),
        ("rain=1..2", "the weather's rain: expected one number, once"),
        ("wind=1,wind=2", "the weather's wind: expected one number or two as in"),
    ],
)
def test_others_are_refused(text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        parse_settings(Weather, text, "the weather")


@pytest.mark.parametrize("bad", [Weather(rain=-1), Weather(rain=float("nan")), Weather((2, 1)), Weather((0, 9))])
def test_bounds(bad: Weather):
    bounds = {"wind": (0.0, 5.0), "rain": (0.0, 1.0)}
    check_settings(Weather(), bounds, "the weather")
    with pytest.raises(ConfigError, match=r"the weather.s (wind|rain): expected 0 to"):
        check_settings(bad, bounds, "the weather")
