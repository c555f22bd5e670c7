"""The values of jobs on Spark."""

from typing import Annotated, Literal

from pydantic import Field

from deploy.helm.blocks import Block, Count, Image, Kubernetes, Label

Cron = Annotated[str, Field(pattern=r"^(@[a-z]+|\S+( +\S+){4})$")]


class Job(Block):
    """One job on Spark."""

    run: Literal["hydrate", "demote", "journal", "tidy", "report", "reconcile"]
    args: list[str] = []
    """Its words after the job's name, as on the command line."""
    schedule: Cron
    """When, in UTC."""
    retries: Annotated[int, Field(ge=0, le=5)] = 0


class SparkOperator(Block):
    """Of mode operator."""

    spark_version: str = "4.2.0"
    main_application_file: str = "local:///opt/duebridge/lib/python3.11/site-packages/duebridge_connectors/spark/commands/submit.py"
    service_account: str = "spark"
    """May start executors; it comes with the operator."""
    executors: Count = 2
    memory: str = "2g"


class Spark(Block):
    """Jobs on Spark."""

    mode: Literal["cronjob", "operator"] = "cronjob"
    image: Image = Image(repository="duebridge-spark")
    jobs: dict[Label, Job] = {}
    cores: Count = 1
    resources: Kubernetes = {
        "requests": {"cpu": "1", "memory": "2Gi"},
        "limits": {"memory": "3Gi"},
    }
    timeout_seconds: Count = 3600
    conf: dict[str, str | int | bool] = {}
    """Settings of Spark."""
    volumes: list[Kubernetes] = []
    volume_mounts: list[Kubernetes] = []
    operator: SparkOperator = SparkOperator()
