"""The values of what Prometheus' operator and Grafana take."""

from typing import Annotated

from pydantic import Field

from deploy.helm.blocks import Block, Kubernetes, Labelled, SecretKey, Strings


class ServiceMonitor(Block):
    """Of Prometheus' operator."""

    enabled: bool = False
    namespace: str = ""
    """Instead of the release's; serveToken has to be there."""
    scrape_timeout: Annotated[str, Field(pattern=r"^([1-9][0-9]*(ms|s|m))?$")] = ""
    honor_labels: bool = False
    interval: Annotated[str, Field(pattern=r"^[1-9][0-9]*(s|m)$")] = "15s"
    labels: Strings = {}
    relabelings: list[Kubernetes] = []
    """After the chart's own, which sets the label release."""
    metric_relabelings: list[Kubernetes] = []
    serve_token: SecretKey | None = None
    """A token for the metrics of `serve`; without one they are not scraped."""


class Alert(Block):
    """What is other than in files/alerts.yaml."""

    enabled: bool = True
    threshold: Annotated[float, Field(ge=0)] | None = None
    """What its expression compares with, in the same unit."""
    for_: Annotated[str, Field(pattern=r"^[0-9]+(s|m|h)$")] | None = Field(None, alias="for")
    severity: Annotated[str, Field(min_length=1)] | None = None


class AlertRules(Labelled):
    """The alerts of files/alerts.yaml."""

    runbook_url: Annotated[str, Field(pattern=r"^(https?://.+)?$")] = ""
    """Where docs/runbooks is; it begins each alert's runbook_url, which without it is left out."""
    alerts: dict[str, Alert] = {}
    """By an alert's name: whether it is there, and its limits."""


class Monitoring(Block):
    """What Prometheus' operator and Grafana take."""

    owner: Annotated[str, Field(pattern=r"^([a-z0-9-]+\.[a-z0-9.-]+)?$")] = ""
    """NAMESPACE.RELEASE, whose alerts and dashboard are of all releases; others then have none."""

    service_monitor: ServiceMonitor = ServiceMonitor()
    rules: AlertRules = AlertRules()
    dashboard: Labelled = Labelled(labels={"grafana_dashboard": "1"})
    """files/dashboard.json, for Grafana's sidecar."""
