"""What the sensors share: the lines of the release ledger, and MLflow brought up to one of them."""

from collections.abc import Iterator

import dagster as dg

from ratchet.release.ledger import Ledger
from resources.home import Home
from resources.registry import Registry


def lines(home: Home) -> Iterator[tuple[Ledger, Registry, str, str]]:
    """Every line of the release ledger, with its registry; none where nothing was released yet."""
    if not home.folder.exists():
        return
    ledger, registry = Ledger.of(home.folder), Registry.of(home.folder)
    for tenant, experiment in ledger.lines():
        yield ledger, registry, tenant, experiment


def show(context: dg.SensorEvaluationContext, home: Home, ledger: Ledger, tenant: str, experiment: str) -> None:
    """Bring MLflow up to a line that has moved; where MLflow is away, warn."""
    try:
        Registry.of(home.folder).reconcile(ledger, tenant, experiment)
    except Exception as error:
        # The ledger has moved, and what serves follows it; `registry_reconciler` shows it when MLflow is there again.
        context.log.warning(f"MLflow does not show yet what became of {tenant}.{experiment}: {error}")
