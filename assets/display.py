"""What a person sees of a stage: its sentence, its figures, its table, and plots as images inside markdown."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ratchet.contracts.canonical import canonical_json
from ratchet.contracts.score import NotComputable
from ratchet.evaluation.format import moment
from ratchet.evaluation.report import figure_rows, headline, policy_entry
from ratchet.evaluation.scorecard import Scorecard
from ratchet.loop.context import Stage
from ratchet.release.records import Incident

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
DIGEST = re.compile(r"[0-9a-f]{64}")
SHOWN_ROWS = 40
LAST = ("reused", "digest")
"""What a person reads last."""
DPI = 90


def result(
    stage: Stage, more: Mapping[str, Any] | None = None, checks: Sequence[dg.AssetCheckResult] = ()
) -> dg.MaterializeResult:
    """The materialisation of a stage. Its digest is the data version, so that Dagster knows what changed.

    Args:
        stage: what the stage did.
        more: further metadata by name.
        checks: what was checked on the way.
    """
    metadata = stage_metadata(stage)
    last = {name: metadata.pop(name) for name in LAST}
    return dg.MaterializeResult(
        metadata={**metadata, **(more or {}), **last},
        data_version=dg.DataVersion(stage.digest),
        check_results=list(checks),
    )


def stage_metadata(stage: Stage) -> dict[str, Any]:
    """Sentence, figures, table and digest of a stage as Dagster metadata, in the order in which they are read."""
    found: dict[str, Any] = {"summary": stage.summary}
    found |= {name: "none" if value is None else value for name, value in stage.figures.items()}
    if stage.rows:
        found["table"] = dg.MetadataValue.md(table(stage.rows))
    return found | {"reused": stage.reused, "digest": stage.digest}


def scorecard_metadata(cards: Sequence[Scorecard]) -> dict[str, Any]:
    """The policies as the report shows them: first figures, all figures, acceptance as a plot and as numbers.

    Dagster draws the numbers over time; a policy that has none gets its reason instead.
    """
    entries = [policy_entry(card) for card in cards]
    found: dict[str, Any] = {
        "table": dg.MetadataValue.md(table(headline(entries))),
        "all figures": dg.MetadataValue.md(table(figure_rows(entries))),
    }
    drawn = acceptance([(one["name"], one["acceptance"]) for one in entries])
    if drawn:
        found["acceptance (plot)"] = dg.MetadataValue.md(drawn)
    for one in entries:
        value = one["acceptance"]["value"]
        found[f"acceptance of {one['name']}"] = float(value) if _number(value) else cell(value)
    return found


def table(rows: Sequence[Row], limit: int = SHOWN_ROWS) -> str:
    """Rows as a markdown table with the union of their columns; beyond `limit` rows, their number is said."""
    if not rows:
        return "no rows"
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(row.get(name)) for name in columns) for row in rows[:limit]]
    text = "\n".join(f"| {line} |" for line in lines)
    return text if len(rows) <= limit else f"{text}\n\n{len(rows) - limit} more rows are not shown."


def incidents(found: Sequence[Incident]) -> str:
    """What was changed by hand in MLflow, as a table; a sentence where nothing was."""
    rows = [{**one.model_dump(include={"what", "seen", "expected", "repaired"}), "at": moment(one.at)} for one in found]
    return table(rows) if rows else "nothing was changed by hand in MLflow"


def cell(value: Any) -> str:
    """One value in a markdown table; words where there is no number, and of a digest its first 12 digits."""
    value = NotComputable.parse(value)
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict) and {"value", "low", "high"} <= value.keys():
        return f"{cell(value['value'])} [{cell(value['low'])}, {cell(value['high'])}]"
    text = canonical_json(value) if isinstance(value, dict | list) else str(value)
    text = DIGEST.sub(lambda found: found[0][:12], text)
    return text.replace("|", "\\|").replace("\n", " ")


def flat(rows: Sequence[Row], x: str = "step") -> list[dict[str, Any]]:
    """Rows with `x` first, the figures under `metrics` as columns of their own, and no column without a value."""
    found = [{**row, **(row.get("metrics") or {})} for row in rows]
    names = dict.fromkeys(name for row in found for name in row if name not in (x, "metrics"))
    kept = [name for name in names if any(row.get(name) is not None for row in found)]
    return [{name: row.get(name) for name in ((x,) if x in row else ()) + tuple(kept)} for row in found]


def curves(rows: Sequence[Row], x: str = "step") -> str | None:
    """Learning curves: every numeric column, and those under `metrics`, over `x` or the row's position, a panel each.

    Returns:
        Markdown with an image inside, or None where there is nothing to draw.
    """
    rows = flat(rows, x)
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != x]
    series = {}
    for name in names:
        points = [(row.get(x, at), row[name]) for at, row in enumerate(rows) if _number(row.get(name))]
        if len(points) > 1 and all(_number(place) for place, _ in points):
            series[name] = points
    if not series:
        return None
    across = min(3, len(series))
    down = -(-len(series) // across)
    figure = _figure(3.6 * across, 2.3 * down)
    for at, (name, points) in enumerate(series.items()):
        axes = figure.add_subplot(down, across, at + 1)
        axes.plot([place for place, _ in points], [value for _, value in points], marker=".", linewidth=1.2)
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.set_xlabel(x, fontsize=8)
        axes.locator_params(axis="x", integer=True)
        if min(value for _, value in points) >= 0:
            axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    return image(figure, "learning curves")


def acceptance(estimates: Sequence[tuple[str, Row]]) -> str | None:
    """Acceptance of every policy with its 95 % interval; None where none can be computed.

    Args:
        estimates: name of the policy, and `value`, `low` and `high` as shares.
    """
    bars = [(name, one) for name, one in estimates if _number(one.get("value"))]
    if not bars:
        return None
    figure = _figure(6.0, 0.7 + 0.45 * len(bars))
    axes = figure.add_subplot(1, 1, 1)
    for at, (_, one) in enumerate(bars):
        axes.plot(100 * one["value"], at, "o", color="C0")
        if _number(one.get("low")) and _number(one.get("high")):
            axes.plot([100 * one["low"], 100 * one["high"]], [at, at], color="C0", linewidth=2)
        axes.annotate(f"{100 * one['value']:.1f} %", (100 * one["value"], at), (0, 6), textcoords="offset points")
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.set_ylim(-0.6, len(bars) - 0.2)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("held-out tasks accepted by majority of seeds, %, with 95 % intervals")
    axes.grid(axis="x", alpha=0.3)
    return image(figure, "acceptance with intervals")


def intervals(estimates: Sequence[tuple[str, Mapping[str, Any]]], label: str, floor: float) -> str | None:
    """Agreement of a judge and its companions, each with its interval where it has one; None where none is a number.

    Args:
        estimates: name of the figure, and `value`, `low` and `high`.
        label: what stands under the axis.
        floor: where a dashed line is drawn.
    """
    points = [(name, one) for name, one in estimates if _number(one.get("value"))]
    if not points:
        return None
    figure = _figure(6.0, 0.8 + 0.35 * len(points))
    axes = figure.add_subplot(1, 1, 1)
    for at, (_, one) in enumerate(points):
        axes.plot(one["value"], at, "o", color="C0")
        if _number(one.get("low")) and _number(one.get("high")):
            axes.plot([one["low"], one["high"]], [at, at], color="C0", linewidth=2)
        axes.annotate(f"{one['value']:.3f}", (one["value"], at), (0, 5), textcoords="offset points")
    axes.axvline(floor, color="C3", linestyle="--", linewidth=1)
    axes.set_yticks(range(len(points)), [name for name, _ in points])
    axes.set_ylim(-0.6, len(points) - 0.2)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.grid(axis="x", alpha=0.3)
    return image(figure, "agreement of the judge")


def image(figure: Figure, title: str) -> str:
    """A figure as markdown with the PNG inside, so that it needs no file and no server."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return f"![{title}](data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()})"


def _figure(width: float, height: float) -> Figure:
    # matplotlib costs about 1 s to import; the Agg canvas needs no display and no global state.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
