"""What an evaluation can see before anything is spent on it.

Connor's formula for two paired proportions, its reading for means of seeds, and the plan that refuses an experiment
whose detectable effect is above the smallest effect worth shipping. Effects are differences of acceptance in [0, 1].
"""

from __future__ import annotations

import math

from pydantic import Field
from scipy.special import ndtr, ndtri

from ratchet.contracts.model import Contract
from ratchet.contracts.score import NotComputable, Quantity
from ratchet.errors import EvaluationError


def detectable_effect(
    n: float, variance: float, power: float = 0.8, alpha: float = 0.05, *, one_sided: bool = False
) -> Quantity:
    """Smallest true difference that a paired test of n tasks finds with the given power.

    Solves sqrt(n) d = z_alpha sqrt(v) + z_power sqrt(v - d^2) for d (Connor 1987, Biometrics 43:207-211), which is
    quadratic in d.

    Args:
        n: tasks (effective number, where they are clustered).
        variance: E[D^2] of the difference D of one task; for majority acceptance the share of discordant tasks.
        power: probability to find it, above 0.5.
        alpha: size of the test.
        one_sided: whether the test is.

    Returns:
        The effect, in [0, 1]; not computable where the tasks are too few to find any.
    """
    if n <= 0 or variance <= 0:
        return NotComputable(reason="no task differs between the policies, so no effect can be sized")
    za, zb = float(ndtri(1 - alpha / (1 if one_sided else 2))), float(ndtri(power))
    effect = _connor(n, variance, za, zb)
    if effect is None or effect > variance:
        # More effect than discordance is impossible: then every discordant task changes one way and v = d, which is the
        # same equation in sqrt(d) with v = 1.
        root = _connor(n, 1.0, za, zb)
        effect = None if root is None else root * root
    if effect is None or effect > 1:
        return NotComputable(reason=f"{n:.0f} tasks are too few for any effect to reach {power:.0%} power")
    return effect


def _connor(n: float, variance: float, za: float, zb: float) -> float | None:
    discriminant = zb * zb * (n * variance - za * za * variance + zb * zb * variance)
    if discriminant < 0:
        return None
    return (za * math.sqrt(n * variance) + math.sqrt(discriminant)) / (n + zb * zb)


def power_of(effect: float, n: float, variance: float, alpha: float = 0.05) -> float:
    """Power of the two-sided paired test at a true difference (Connor 1987). Arguments as in `detectable_effect`."""
    spread = math.sqrt(max(variance - effect * effect, 1e-300))
    return float(ndtr((math.sqrt(n) * abs(effect) - float(ndtri(1 - alpha / 2)) * math.sqrt(variance)) / spread))


def unpaired_detectable_effect(n: int, incumbent: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest increase over `incumbent` that two separate samples of n show (Fleiss, Levin and Paik 2003, section
    4.2).

    Found by bisection; accurate to 1e-9.
    """
    za, zb = float(ndtri(1 - alpha / 2)), float(ndtri(power))
    low, high = 0.0, 1.0 - incumbent
    while high - low > 1e-9:
        effect = (low + high) / 2
        share, candidate = incumbent + effect / 2, incumbent + effect
        needed = za * math.sqrt(2 * share * (1 - share)) + zb * math.sqrt(
            incumbent * (1 - incumbent) + candidate * (1 - candidate)
        )
        low, high = (effect, high) if math.sqrt(n) * effect < needed else (low, effect)
    return high


class PowerPlan(Contract):
    """What the held-out evaluation will be able to see, under stated assumptions."""

    n_tasks: int = Field(description="Held-out tasks.")
    seeds: int = Field(description="Seeds per task.")
    effective_tasks: float = Field(description="Independent tasks that the clustered ones are worth.")
    discordance: float = Field(description="Assumed share of tasks on which two policies differ in one seed.")
    task_share: float = Field(description="Assumed share of that variance that more seeds do not average out.")
    cluster_correlation: float = Field(description="Assumed correlation of differences within a repo.")
    power: float = Field(description="Probability to find the effect.")
    detectable_majority: Quantity = Field(description="By exact McNemar on majority acceptance.")
    detectable_mean: Quantity = Field(description="By the paired bootstrap of means of seeds, which the gate uses.")
    minimum_effect: float = Field(description="Smallest effect worth shipping, from the manifest.")
    sees_goal: bool = Field(description="Whether the detectable effect is at most the minimum effect.")
    accepted_underpowered: bool = Field(description="Whether the manifest accepts that it is not.")

    def __str__(self) -> str:
        def points(effect: Quantity) -> str:
            return "no effect at all" if isinstance(effect, NotComputable) else f"{100 * effect:.1f} points"

        return (
            f"{self.n_tasks} tasks x {self.seeds} seeds (worth {self.effective_tasks:.0f} independent tasks) show "
            f"{points(self.detectable_mean)} with {self.power:.0%} power "
            f"({points(self.detectable_majority)} by majority); "
            f"smallest effect worth shipping: {points(self.minimum_effect)}"
        )


def power_plan(
    n_tasks: int,
    seeds: int,
    minimum_effect: float,
    *,
    accept_underpowered: bool = False,
    clusters: int | None = None,
    cluster_correlation: float = 0.1,
    discordance: float = 0.175,
    task_share: float = 0.2,
    power: float = 0.8,
    alpha: float = 0.05,
) -> PowerPlan:
    """Size an evaluation before it runs.

    The variance of a task's mean difference over k seeds is v (r + (1 - r) / k), with v the discordance of one seed and
    r the share of it that belongs to the task. Clusters of mean size m divide n by the design effect 1 + (m - 1) rho
    (Kish 1965). The default v and r give 4.0 points for 400 tasks x 3 seeds, against 5.8 by majority.

    Args:
        n_tasks: held-out tasks.
        seeds: seeds per task.
        minimum_effect: smallest difference worth shipping, in [0, 1].
        accept_underpowered: whether the manifest accepts a plan that cannot see it.
        clusters: repos that the tasks come from, or None where every task has its own.
        cluster_correlation: rho, of task differences within a repo.
        discordance: v, a guess from earlier evaluations.
        task_share: r.
        power: wanted.
        alpha: of the two-sided test.

    Raises:
        EvaluationError: the plan cannot see its own goal and the manifest does not accept that.
    """
    size = n_tasks / clusters if clusters else 1.0
    effective = n_tasks / (1 + (size - 1) * cluster_correlation)
    variance = discordance * (task_share + (1 - task_share) / seeds)
    by_mean = detectable_effect(effective, variance, power, alpha)
    sees = not isinstance(by_mean, NotComputable) and by_mean <= minimum_effect
    plan = PowerPlan(
        n_tasks=n_tasks,
        seeds=seeds,
        effective_tasks=float(effective),
        discordance=discordance,
        task_share=task_share,
        cluster_correlation=cluster_correlation if clusters else 0.0,
        power=power,
        detectable_majority=detectable_effect(effective, discordance, power, alpha),
        detectable_mean=by_mean,
        minimum_effect=minimum_effect,
        sees_goal=sees,
        accepted_underpowered=accept_underpowered,
    )
    if not sees and not accept_underpowered:
        raise EvaluationError(
            "evaluation.minimum_effect",
            seen=minimum_effect,
            rule=f"the evaluation must be able to see it, and {plan}",
            remedy="add tasks or seeds, raise minimum_effect, or set evaluation.accept_underpowered: true",
        )
    return plan
