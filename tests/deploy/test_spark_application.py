"""`deploy/spark`: one run of a job is what the chart makes of it, without the schedule."""

import yaml

from tests.conftest import ROOT
from tests.deploy.chart import FOLDER, Chart, objects, one, values_of

JOB = "duebridge-hydrate"


def test_application_is_what_the_chart_makes_of_the_job(chart: Chart) -> None:
    """The release has the ConfigMap's name; a secret for pulling is nobody's default."""
    given = ("-f", str(values_of("spark-operator")), "--set", "imagePullSecrets=null")
    rendered = list(objects(chart.run("template", "duebridge", str(FOLDER), *given)))
    scheduled = one(rendered, "ScheduledSparkApplication", JOB)
    application = yaml.safe_load((ROOT / "deploy" / "spark" / "application.yaml").read_text())
    assert application == {
        "apiVersion": scheduled["apiVersion"],
        "kind": "SparkApplication",
        "metadata": {"name": JOB},
        "spec": scheduled["spec"]["template"],
    }
