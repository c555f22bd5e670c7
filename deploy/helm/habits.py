"""Words of other charts for what has another name here; templates/_habits.tpl maps them.

A template refuses what is not named here, unless it is empty: it knows what to write instead.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from deploy.helm.blocks import Count, Kubernetes, Share, Strings

Unset = Literal[""]
Least = Annotated[int, Field(ge=0)]
Interval = Annotated[str, Field(pattern=r"^([1-9][0-9]*(s|m))?$")]
Timeout = Annotated[str, Field(pattern=r"^([1-9][0-9]*(ms|s|m))?$")]


class Habit(BaseModel):
    """A block of other charts; what is not given is as our own words say."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="allow", use_attribute_docstrings=True
    )


class Pdb(Habit):
    """podDisruptionBudget."""

    create: bool | None = None
    min_available: Least | Share | Unset | None = None
    """It has to let one pod go."""
    max_unavailable: Count | Share | Unset | None = None


class TheirMonitor(Habit):
    """monitoring.serviceMonitor."""

    enabled: bool | None = None
    namespace: str | None = None
    interval: Interval | None = None
    scrape_timeout: Timeout | None = None
    honor_labels: bool | None = None
    labels: Strings | None = None
    additional_labels: Strings | None = None
    relabelings: list[Kubernetes] | None = None
    metric_relabelings: list[Kubernetes] | None = None


class TheirRules(Habit):
    """monitoring.rules."""

    enabled: bool | None = None
    namespace: str | None = None
    additional_labels: Strings | None = None


class Metrics(Habit):
    """monitoring; its parts count once this is enabled."""

    enabled: bool | None = None
    service_monitor: TheirMonitor | None = None
    prometheus_rule: TheirRules | None = None


class Ports(Habit):
    """Of a Service."""

    http: Count | None = None
    """serve.port."""


class TheirService(Habit):
    """serve.service."""

    type: Literal["", "ClusterIP", "NodePort", "LoadBalancer"] | None = None
    ports: Ports | None = None
    annotations: Strings | None = None
