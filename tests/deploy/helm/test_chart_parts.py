"""Jobs on Spark, the trial store, the package, the notes."""

import re
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from duebridge.cli.app import app
from tests.deploy.chart import (
    FOLDER,
    Chart,
    container_of,
    loaded,
    objects,
    one,
    values_of,
)
from tests.support.checkout import ROOT

JOBS = ("demote", "hydrate", "journal", "reconcile", "report")
SPARK = "ScheduledSparkApplication"
CONFIG_WORDS = ["--config", "/etc/duebridge/duebridge.yaml"]


@pytest.mark.parametrize("name", JOBS)
def test_job_on_spark_has_words_that_the_command_line_takes(
    chart: Chart, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = one(chart.mode("spark-cronjob"), "CronJob", f"demo-duebridge-{name}")["spec"]
    [container] = job["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    words = container["args"]
    assert words[:4] == [*CONFIG_WORDS, "spark", name]
    options = ["spark.master=local[2]", "spark.driver.memory=2g"]
    assert words[-4:] == [word for each in options for word in ("--spark", each)]
    # Spark is only looked for once all the words are understood
    monkeypatch.setitem(sys.modules, "duebridge_connectors.spark.session", None)
    outcome = CliRunner().invoke(app, words)
    assert "spark: expected the Python package" in str(outcome.exception), outcome.output


@pytest.mark.parametrize("name", JOBS)
def test_job_on_spark_never_runs_twice_at_once(chart: Chart, name: str) -> None:
    plain = one(chart.mode("spark-cronjob"), "CronJob", f"demo-duebridge-{name}")
    of_operator = one(chart.mode("spark-operator"), SPARK, f"demo-duebridge-{name}")
    for each in (plain, of_operator):
        assert each["spec"]["concurrencyPolicy"] == "Forbid"
        assert each["spec"]["timeZone"] == "Etc/UTC"


GREAT = 134_217_728
FREE = {"a.bytes": GREAT, "a.on": True, "a.ratio": "0.5"}


def test_settings_of_spark_are_given_as_they_are_written(chart: Chart) -> None:
    """A whole number of values.yaml reaches a template as 1.34217728e+08."""
    rendered = chart.given({"spark.conf": FREE, "spark.timeoutSeconds": GREAT}, "spark-cronjob")
    job = one(rendered, "CronJob", "demo-duebridge-hydrate")["spec"]["jobTemplate"]["spec"]
    [container] = job["template"]["spec"]["containers"]
    given = [f"a.bytes={GREAT}", "a.on=true", "a.ratio=0.5"]
    assert [each for each in container["args"] if each.startswith("a.")] == given
    assert job["activeDeadlineSeconds"] == GREAT
    rendered = chart.given({"spark.conf": FREE}, "spark-operator")
    conf = one(rendered, SPARK, "demo-duebridge-hydrate")["spec"]["template"]["sparkConf"]
    assert FREE.keys() <= conf.keys()
    assert [f"{name}={conf[name]}" for name in FREE] == given


def test_directory_of_spark_that_is_given_is_the_only_one(chart: Chart) -> None:
    given = {"extraEnv": [{"name": "SPARK_LOCAL_DIRS", "value": "/scratch"}]}
    for values, expected in [(given, "/scratch"), ({}, None)]:
        rendered = chart.given(values, "spark-cronjob")
        job = one(rendered, "CronJob", "demo-duebridge-hydrate")["spec"]["jobTemplate"]["spec"]
        [container] = job["template"]["spec"]["containers"]
        named = [each for each in container["env"] if each["name"] == "SPARK_LOCAL_DIRS"]
        assert [each["value"] for each in named] == [expected or container["workingDir"]]


def test_common_label_reaches_driver_and_executors(chart: Chart) -> None:
    rendered = chart.given({"commonLabels": {"team": "orders"}}, mode="spark-operator")
    spec = one(rendered, SPARK, "demo-duebridge-hydrate")["spec"]["template"]
    assert [spec[pod]["labels"]["team"] for pod in ("driver", "executor")] == ["orders"] * 2


def test_job_of_the_operator_is_the_same_job(chart: Chart) -> None:
    application = one(chart.mode("spark-operator"), SPARK, "demo-duebridge-hydrate")
    template = application["spec"]["template"]
    assert template["arguments"] == ["hydrate", "reminders", *CONFIG_WORDS]
    _, _, program = template["mainApplicationFile"].partition("/site-packages/")
    assert (ROOT / "connectors" / program).is_file()
    assert template["restartPolicy"]["type"] == "OnFailure"
    assert template["driver"]["serviceAccount"] == "spark"
    for pod in ("driver", "executor"):
        paths = [each["mountPath"] for each in template[pod]["volumeMounts"]]
        assert {"/etc/duebridge", "/data"} < set(paths)


def test_application_is_what_the_chart_makes_of_the_job(chart: Chart) -> None:
    """The release has the ConfigMap's name; a secret for pulling is nobody's default."""
    given = ("-f", str(values_of("spark-operator")), "--set", "imagePullSecrets=null")
    rendered = list(objects(chart.run("template", "duebridge", str(FOLDER), *given)))
    scheduled = one(rendered, SPARK, "duebridge-hydrate")
    application = yaml.safe_load((ROOT / "deploy" / "spark" / "application.yaml").read_text())
    assert application == {
        "apiVersion": scheduled["apiVersion"],
        "kind": "SparkApplication",
        "metadata": {"name": "duebridge-hydrate"},
        "spec": scheduled["spec"]["template"],
    }


def test_trial_store_if_asked_for_is_the_one_that_workers_use(chart: Chart) -> None:
    assert not [each for each in chart.mode("kafka") if each["kind"] == "StatefulSet"]
    rendered = chart.mode("trial")
    service = one(rendered, "Service", "demo-duebridge-valkey")
    port = service["spec"]["ports"][0]["port"]
    assert loaded(rendered).store.url == f"redis://{service['metadata']['name']}:{port}/0"
    words = " ".join(container_of(rendered, "StatefulSet")["args"])
    assert "--appendonly yes" in words
    assert "--maxmemory-policy noeviction" in words


def test_trial_store_has_a_volume_if_asked_for(chart: Chart) -> None:
    assert "volumeClaimTemplates" not in one(chart.mode("trial"), "StatefulSet")["spec"]
    spec = one(chart.mode("trial-volume"), "StatefulSet")["spec"]
    [claim] = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    assert "volumes" not in spec["template"]["spec"]


def test_trial_store_takes_other_settings_of_the_store(chart: Chart) -> None:
    rendered = chart.given({"config.store": {"namespace": "shop"}}, mode="trial")
    assert loaded(rendered).store.namespace == "shop"


def test_links_of_the_packaged_readme_stay_in_the_package(chart: Chart, tmp_path: Path) -> None:
    chart.run("package", str(FOLDER), "-d", str(tmp_path))
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as package:
        names = set(package.getnames())
        readme = package.extractfile("duebridge/README.md")
        assert readme is not None
        links = re.findall(r"\]\(([^)#]+)", readme.read().decode())
    assert links
    inside = [link for link in links if not link.startswith("https://")]
    assert [link for link in inside if f"duebridge/{link}" not in names] == []


def notes(chart: Chart, mode: str) -> str:
    words = ("install", "demo", str(FOLDER), "-f", str(values_of(mode)), "--dry-run=client")
    return " ".join(chart.run(*words).partition("NOTES:\n")[2].split())


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("trial", "every envelope that waits is lost"),
        ("trial", "one worker"),
        ("trial-volume", "WARNING: valkey.enabled"),
        (
            "trial",
            "redis://demo-duebridge-valkey.default:6379/0 from pods of the namespace default",
        ),
        ("trial", "that have the label duebridge/store: demo-duebridge."),
        ("kafka", "store: {namespace: default.demo}"),
        ("kafka", "After `helm uninstall demo` what is not delivered still waits in the store"),
        ("bare", "Nothing stops an upgrade"),
        ("console", "exec deploy/demo-duebridge-http -- duebridge token ops --scopes operate"),
        ("console", "create secret generic duebridge-tokens --from-file=tokens.yaml --dry-run"),
        ("console", "port-forward service/demo-duebridge-http 8480:80"),
        ("bitnami", "port-forward service/demo-duebridge-http 8480:8080"),
        ("spark-cronjob", "create job --from=cronjob/demo-duebridge-hydrate hydrate-now"),
    ],
)
def test_notes_warn_of_what_is_risky_and_say_what_to_type(
    chart: Chart, mode: str, said: str
) -> None:
    assert said in notes(chart, mode)


def test_notes_name_no_secret_where_the_tokens_are_no_file_of_one(chart: Chart) -> None:
    given = ("-f", str(values_of("console")), "--set=config.serve.tokens=${TOKENS}")
    said = chart.run("install", "demo", str(FOLDER), *given, "--dry-run=client")
    assert "create secret generic SECRET --from-file=tokens.yaml" in said


def test_notes_speak_of_the_console_only_if_it_is_served(chart: Chart) -> None:
    assert "console" not in notes(chart, "kafka")
