"""`demote` and `hydrate`: rows of a month to the cold tier, a file an hour, and back."""

import shutil
from pathlib import Path

from duebridge_connectors.spark.jobs.demote import run_demote
from duebridge_connectors.spark.jobs.hydrate import run_hydrate
from duebridge_connectors.spark.source.dataframes import write_envelopes
from tests.bench.spark.bulk import envelopes
from tests.bench.spark.stage import COLD_ROUTE, Round, Stage


def measure_demote(stage: Stage, rows: int) -> Round:
    """Move rows from a store that has no others."""
    _fill(stage, rows)
    found: list[Round] = []
    with stage.watched(found, rows):
        done = run_demote(stage.spark, config=stage.config, route=COLD_ROUTE)
    assert (done.removed, done.void) == (rows, 0), done
    return found[0]


def measure_hydrate(stage: Stage, rows: int) -> Round:
    """Bring back rows that were demoted, all at once: the horizon is beyond them."""
    _fill(stage, rows)
    run_demote(stage.spark, config=stage.config, route=COLD_ROUTE)
    later = Path(stage.config).with_name("later.yaml")
    later.write_text(Path(stage.config).read_text().replace("horizon: 1h", "horizon: 90d"))
    found: list[Round] = []
    with stage.watched(found, rows):
        done = run_hydrate(stage.spark, config=str(later), route=COLD_ROUTE)
    assert (done.accepted, done.left) == (rows, 0), done
    return found[0]


def _fill(stage: Stage, rows: int) -> None:
    stage.client.flushall()
    shutil.rmtree(Path(stage.config).parent / "cold", ignore_errors=True)
    write_envelopes(envelopes(stage.spark, rows, 0), config=stage.config, route=COLD_ROUTE)
