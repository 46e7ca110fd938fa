"""Table-level expectations of the trajectory index, by Great Expectations in an ephemeral context.

What is expected of a single record is a pydantic rule of the intake; here the table as a whole is judged. Great
Expectations is imported inside the function (9 to 15 s); its Data Docs load scripts from the network, so its results
are returned as plain rows for our own tables.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.intake.rows import INDEX_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (*INDEX_COLUMNS, "batch", "ingested_at")
REQUIRED = ("digest", "grant_id", "score_kind", "calls", "steps", "source", "format", "batch", "ingested_at")
SCORE_KINDS = ("scored", "invalid", "unscored")


class Expected(NamedTuple):
    """The outcome of one expectation."""

    expectation: str
    about: str
    passed: bool
    unexpected: int | None
    """Rows that do not meet it; None where it is about the table, or could not be computed."""
    why: str


def check_index(
    frame: pd.DataFrame, *, grants: Collection[str], formats: Collection[str], segments: Collection[str]
) -> list[Expected]:
    """Hold an index table against its suite.

    Args:
        frame: one row per trajectory, as `ratchet.intake.index` returns it.
        grants: grants of the tenant: a row under any other belongs to somebody else.
        formats: registered formats.
        segments: segments of the tenant's locked tasks; empty where there is no lock yet, which leaves them open.

    Returns:
        A row per expectation. One that could not be computed (its column is missing) did not pass.
    """
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_pandas("store").add_dataframe_asset("index")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch(batch_parameters={"dataframe": frame})
    suite = gx.ExpectationSuite(name="index", expectations=_suite(gx.expectations, grants, formats, segments))
    return [_row(one) for one in batch.validate(suite).results]


def _suite(expect: Any, grants: Collection[str], formats: Collection[str], segments: Collection[str]) -> Sequence[Any]:
    known: list[tuple[str, Collection[str]]] = [
        ("grant_id", grants),
        ("format", formats),
        ("score_kind", SCORE_KINDS),
        *([("segment", segments)] if segments else []),
    ]
    return [
        expect.ExpectTableRowCountToBeBetween(min_value=1),
        expect.ExpectTableColumnsToMatchSet(column_set=list(COLUMNS), exact_match=True),
        expect.ExpectColumnValuesToBeUnique(column="digest"),
        *(expect.ExpectColumnValuesToNotBeNull(column=name) for name in REQUIRED),
        *(expect.ExpectColumnValuesToBeInSet(column=name, value_set=sorted(values)) for name, values in known),
        expect.ExpectColumnValuesToBeBetween(column="steps", min_value=1),
        expect.ExpectColumnValuesToBeBetween(column="calls", min_value=0),
        expect.ExpectColumnValuesToBeBetween(column="ok_calls", min_value=0),
        expect.ExpectColumnValuesToBeBetween(column="offset", min_value=0),
        expect.ExpectColumnValuesToBeBetween(column="score", min_value=0, max_value=1),
    ]


def _row(one: Any) -> Expected:
    config = one.expectation_config
    about = str(config.kwargs.get("column", "table"))
    raised = _exception(one.exception_info)
    found = dict(one.result or {})
    unexpected = found.get("unexpected_count")
    if raised:
        why = f"could not be computed: {raised}"
    elif one.success:
        why = "met"
    elif unexpected is not None:
        why = f"not met by {unexpected} of {found.get('element_count')} rows, first {_first(found)}"
    else:
        why = f"observed {_short(found.get('details', {}).get('mismatched') or found.get('observed_value'))}"
    return Expected(str(config.type), about, bool(one.success) and not raised, unexpected, why)


def _exception(info: Any) -> str | None:
    """The message of an exception; Great Expectations nests the entries by metric, or gives a single one."""
    entries = [info] if "raised_exception" in (info or {}) else list((info or {}).values())
    raised = [entry for entry in entries if isinstance(entry, dict) and entry.get("raised_exception")]
    return str(raised[0].get("exception_message")) if raised else None


def _first(found: dict[str, Any]) -> str:
    return _short(next(iter(found.get("partial_unexpected_list") or []), None))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
