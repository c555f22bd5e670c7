"""The metrics that a worker exposes."""

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import CollectorRegistry

from duebridge.config.models import WorkerSettings
from duebridge.telemetry import metrics
from duebridge.worker.lanes.daemon_executor import DaemonExecutor
from duebridge.worker.lanes.lane import Lane
from duebridge.worker.reporting.gauges import ShardCollector, register
from duebridge_connectors.memory import MemoryPublisher
from tests.support.floor import Floor


def exposed() -> dict[str, str]:
    """Return the kind of each metric family, by its name in queries."""
    registry = CollectorRegistry()
    lane = Lane("b", MemoryPublisher(), WorkerSettings(), DaemonExecutor(1, "lane"))
    for each in vars(metrics).values():
        if isinstance(each, MetricWrapperBase | metrics.LatenessHistogram):
            registry.register(each)
    registry.register(ShardCollector(list, [lane]))
    metrics.lateness.observe("r", [0.1])
    families = registry.collect()
    return {each.name + "_total" * (each.type == "counter"): each.type for each in families}


def registry_of(floor: Floor) -> CollectorRegistry:
    """Return a registry of its own with the gauges of a floor's worker."""
    registry = CollectorRegistry()
    register(lambda: floor.worker.views, [floor.lane], registry=registry)
    return registry
