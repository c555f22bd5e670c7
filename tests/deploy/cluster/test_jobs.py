"""A job on Spark, started from its CronJob: where the nodes have the image, which is a gigabyte."""

import os

import pytest

from tests.deploy.cluster.bridge import Bridge

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

MESSAGES = 100


def test_journal_job_reads_what_was_delivered(bridge: Bridge) -> None:
    image = os.environ.get("DUEBRIDGE_K8S_SPARK_IMAGE")
    if not image:
        pytest.skip("set DUEBRIDGE_K8S_SPARK_IMAGE")
    repository, _, tag = image.rpartition(":")
    job = {"run": "journal", "args": ["/data/journal"], "schedule": "0 0 1 1 *"}
    spark = {
        "image": {"repository": repository, "tag": tag},
        "jobs": {"journal": job},
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
        "volumes": [{"name": "data", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    bridge.install(spark=spark)
    bridge.schedule(MESSAGES)
    bridge.settle()
    run = f"{bridge.name}-now"
    bridge.kube.kubectl("create", "job", f"--from=cronjob/{bridge.name}-journal", run)
    bridge.kube.kubectl("wait", f"job/{run}", "--for=condition=Complete", "--timeout=110s")
    assert f"{2 * MESSAGES} rows" in bridge.kube.kubectl("logs", f"job/{run}")
