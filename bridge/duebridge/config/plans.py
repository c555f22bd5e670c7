"""Builds the plan of a source from its intake's configuration."""

from duebridge.config.models import Config
from duebridge.ports.source import SourcePlan


def source_plan(config: Config, name: str) -> SourcePlan:
    """Return the plan of the intake of this name."""
    intake = config.intakes[name]
    source = intake.source.model_dump()
    return SourcePlan(
        intake=name,
        broker=source.pop("broker"),
        source=source,
        declare=None if intake.declare is None else intake.declare.model_dump(),
        dead_letter=intake.dead_letter or config.routes[intake.route].dead_letter,
    )
