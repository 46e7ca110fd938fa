"""How figures read, and that the reason stands wherever a number would."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ratchet.contracts.score import NotComputable
from ratchet.evaluation import format as show

WHY = NotComputable(reason="0 accepted results in the window")
SERIALISED = {"not_computable": WHY.reason}
ONE = (show.percent, show.points, show.money, show.seconds, show.whole, show.p_value)
INTERVALS = (show.percent_interval, show.points_interval)


@pytest.mark.parametrize("formatter", [*ONE, *INTERVALS])
def test_what_cannot_be_computed_reads_as_its_reason(formatter: Callable[[object], str]) -> None:
    assert formatter(WHY) == formatter(SERIALISED) == WHY.reason
    assert formatter(None) == "–"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (show.percent(0.5725), "57.2 %"),
        (show.points(0.16), "+16.0 points"),
        (show.points(-0.04), "-4.0 points"),
        (show.money(1600, "USD"), "1,600.00 USD"),
        (show.money(0.02184, "EUR"), "0.02184 EUR"),
        (show.money(0), "0"),
        (show.money(3.0361e-05, "USD"), "0.00003036 USD"),
        (show.money(-9.9999), "-10"),
        (show.moment("2026-01-02T03:04:05.6Z"), "2026-01-02 03:04 UTC"),
        (show.seconds(1.239), "1.24 s"),
        (show.seconds(0.0123), "12.3 ms"),
        (show.whole(2187.0), "2,187"),
        (show.p_value(0.0019), "0.0019"),
        (show.p_value(1e-10), "< 0.0001"),
        (show.percent_interval({"value": 0.572, "low": 0.521, "high": 0.623}), "57.2 % [52.1, 62.3]"),
        (show.points_interval({"value": 0.16, "low": 0.113, "high": 0.207}), "+16.0 points [+11.3, +20.7]"),
        (show.percent_interval({"value": 0.5, "low": SERIALISED, "high": SERIALISED}), "50.0 %"),
    ],
)
def test_figures_read_one_way(text: str, wanted: str) -> None:
    assert text == wanted
