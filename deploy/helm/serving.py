"""The values of `duebridge serve`: its pods, its Service, and the way to it from outside."""

from typing import Literal

from pydantic import Field

from deploy.helm.blocks import Block, Count, Image, Kubernetes, PodSettings, Strings

PathType = Literal["Prefix", "Exact", "ImplementationSpecific"]


class Autoscaling(Block):
    """By CPU, a share of what is requested."""

    enabled: bool = False
    min_replicas: Count = 2
    max_replicas: Count = 10
    target_cpu: Count = Field(80, alias="targetCPU")
    """Percent."""


class Host(Block):
    """A further name of the same Service."""

    name: str
    path: str = "/"
    path_type: PathType = "Prefix"


class Ingress(Block):
    """Of `duebridge serve`; its NetworkPolicy has to let the controller in."""

    enabled: bool = False
    hostname: str = ""
    ingress_class_name: str = ""
    path: str = "/"
    path_type: PathType = "Prefix"
    annotations: Strings = {}
    tls: bool = False
    """With the Secret HOSTNAME-tls."""
    tls_elsewhere: bool = False
    """Whether TLS ends before this Ingress; else each host needs tls or an entry of extraTls."""
    extra_hosts: list[Host] = []
    extra_tls: list[Kubernetes] = []


class Service(Block):
    """Of `duebridge serve`."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    annotations: Strings = {}


class HttpServer(PodSettings):
    """`duebridge serve`, envelopes over HTTP; it needs `config.serve.tokens`."""

    enabled: bool = False
    image: Image | None = None
    """Instead of the workers': Spark's image reads the files of a cold tier."""
    replicas: Count = 2
    autoscaling: Autoscaling = Autoscaling()
    port: Count = 80
    """Of the Service; pods listen on 8480."""
    service: Service = Service()
    ingress: Ingress = Ingress()
    resources: Kubernetes = {
        "requests": {"cpu": "250m", "memory": "128Mi"},
        "limits": {"memory": "512Mi"},
    }
    from_: list[Kubernetes] = Field([], alias="from")
    """Who may send envelopes; empty: anybody."""
