"""How the exploitation audits read in the report: what the detectors say, how often each kind was seen before and
after training, and the episodes one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ratchet.contracts.canonical import plain
from ratchet.evaluation import format as show
from ratchet.rewards.audit import RewardAudit
from ratchet.rewards.policy_audit import PolicyAudit

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 12
"""Episodes that a terminal shows of one policy; the page and the JSON object hold all."""
EPISODE = ("task", "seed", "kind", "what was seen")
"""Headings of a listed episode."""


def audits_entry(reward: RewardAudit, changes: Sequence[str], policies: Mapping[str, PolicyAudit]) -> dict[str, Any]:
    """What the report holds of the audits, as plain JSON.

    Args:
        reward: the audit of the reward before training.
        changes: what its repetition after training says.
        policies: the audits of the candidates' episodes, by name of the candidate.
    """
    return plain(
        {
            "reward": {"passed": reward.passed, "failures": list(reward.failures), "changes": list(changes)},
            "policies": [
                {
                    "policy": name,
                    "passed": audit.passed,
                    "failures": list(audit.failures),
                    "kinds": [one.model_dump(mode="json") for one in audit.kinds],
                    "detections": [one.model_dump(mode="json", exclude={"episodes"}) for one in audit.detections],
                    "episodes": [one.model_dump(mode="json") for one in audit.episodes],
                }
                for name, audit in policies.items()
            ],
        }
    )


def audit_tables(audits: Mapping[str, Any]) -> list[Table]:
    """Lay out for a terminal what was found: a table of kinds and detectors, and the episodes per flagged policy."""
    from rich.markup import escape as plain_text
    from rich.table import Table

    summary = Table("policy", "seen or detected", "incumbent", "candidate", "why", title_justify="left")
    summary.title = f"Exploitation audit; the reward: {reward_words(audits['reward'])}"
    tables = [summary]
    for policy in audits["policies"]:
        for cells in found_rows(policy):
            summary.add_row(*map(plain_text, cells))
        if not policy["episodes"]:
            continue
        listed = Table(*EPISODE, title_justify="left")
        left = len(policy["episodes"]) - SHOWN
        more = f", {left} more in --html and --json" if left > 0 else ""
        listed.title = f"Episodes of {policy['policy']} that speak against it{more}"
        for one in spread(policy["episodes"], SHOWN):
            listed.add_row(*map(plain_text, episode_cells(one)))
        tables.append(listed)
    return tables


def audit_section(audits: Mapping[str, Any]) -> str:
    """The same as HTML, with every episode."""
    rows = "".join(
        f'<tr><th scope="row">{escape(cells[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells[1:])
        + "</tr>"
        for policy in audits["policies"]
        for cells in found_rows(policy)
    )
    heads = "".join(f"<th>{head}</th>" for head in ("policy", "seen or detected", "incumbent", "candidate", "why"))
    parts = [
        f"<h2>Exploitation audit</h2><p>The reward: {escape(reward_words(audits['reward']))}.</p>",
        f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>',
    ]
    for policy in audits["policies"]:
        if not policy["episodes"]:
            continue
        listed = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in episode_cells(one)) + "</tr>"
            for one in policy["episodes"]
        )
        parts.append(
            f"<details><summary>{show.whole(len(policy['episodes']))} entries against {escape(policy['policy'])}, "
            f'episode by episode</summary><div class="wide"><table><thead><tr>'
            f"{''.join(f'<th>{head}</th>' for head in EPISODE)}</tr></thead>"
            f"<tbody>{listed}</tbody></table></div></details>"
        )
    return "".join(parts)


def reward_words(reward: Mapping[str, Any]) -> str:
    """What the two audits of the reward came to, in one sentence."""
    before = "; ".join(reward["failures"]) or "no honeypot earns anything"
    return f"{before}; after training {'; '.join(reward['changes']) or 'the same'}"


def found_rows(policy: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """A row per kind of exploit that was seen and per detector that fired; one row where there is nothing."""
    name = policy["policy"]
    rows = [
        (name, one["kind"], show.percent(one["incumbent"]), show.percent(one["candidate"]), "share of the episodes")
        for one in policy["kinds"]
    ]
    rows += [(name, one["name"], "", "FLAGGED", one["reason"]) for one in policy["detections"] if one["fired"]]
    undecided = [one["name"] for one in policy["detections"] if one["reason"].startswith("undecided")]
    if not rows:
        rows = [(name, "nothing", "", "", "no detector fired")]
    if undecided:
        rows.append((name, "undecided", "", "", ", ".join(undecided)))
    return rows


def episode_cells(one: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """A listed episode under the headings of `EPISODE`."""
    return one["task_id"], str(one["seed"]), one["kind"], one["seen"]


def spread(episodes: Sequence[Mapping[str, Any]], at_most: int) -> list[Mapping[str, Any]]:
    """The first episodes of every kind in turn, so that a frequent kind does not hide a rare one."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for one in episodes:
        by_kind.setdefault(one["kind"], []).append(one)
    turns = [one for turn in range(at_most) for group in by_kind.values() for one in group[turn : turn + 1]]
    chosen = {id(one) for one in turns[:at_most]}
    return [one for group in by_kind.values() for one in group if id(one) in chosen]
