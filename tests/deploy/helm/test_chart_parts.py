"""The check before an upgrade, jobs on Spark, monitoring, the trial store, the notes."""

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
    MODES,
    Chart,
    configuration,
    container_of,
    loaded,
    objects,
    one,
    pod_of,
    values_of,
)
from tests.support.checkout import ROOT

JOBS = ("demote", "hydrate", "journal", "reconcile", "report")
HOOK = "helm.sh/hook"


CHECK = ("Job", "demo-duebridge-check")
ROLLBACK = ("Job", "demo-duebridge-check-rollback")
SPARK = "ScheduledSparkApplication"
CONFIG_WORDS = ["--config", "/etc/duebridge/duebridge.yaml"]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bare"])
def test_check_runs_before_every_change_and_its_log_stays(chart: Chart, mode: str) -> None:
    rendered = chart.mode(mode)
    checks = [one(rendered, *each) for each in (CHECK, ROLLBACK)]
    annotations = [each["metadata"]["annotations"] for each in checks]
    # of two names, so that the rollback of an upgrade leaves what stopped it to be read
    assert [each[HOOK] for each in annotations] == ["pre-install,pre-upgrade", "pre-rollback"]
    assert not any("hook-failed" in each["helm.sh/hook-delete-policy"] for each in annotations)
    assert checks[0]["spec"] == checks[1]["spec"]
    assert checks[0]["spec"]["backoffLimit"] == 0
    assert checks[0]["spec"]["activeDeadlineSeconds"] <= 120


def test_check_of_a_rollback_can_be_left_out(chart: Chart) -> None:
    rendered = chart.given({"preflight.rollback": False})
    hooks = {each["metadata"].get("annotations", {}).get(HOOK) for each in rendered}
    assert "pre-install,pre-upgrade" in hooks
    assert not any("pre-rollback" in hook for hook in hooks if hook)


def test_check_reads_the_configuration_to_come_before_anything_changes(chart: Chart) -> None:
    rendered = chart.mode("kafka")
    pod = pod_of(rendered, *CHECK)
    made = one(rendered, "ConfigMap", pod["volumes"][0]["configMap"]["name"])
    assert made["data"]["duebridge.yaml"] == configuration(rendered)
    [account] = [
        each
        for each in rendered
        if each["kind"] == "ServiceAccount" and HOOK in each["metadata"].get("annotations", {})
    ]
    # of the workers' name, which exists only after the check of an install
    assert account["metadata"]["name"] == pod["serviceAccountName"]
    hooks = [each["metadata"]["annotations"] for each in (account, made, one(rendered, *CHECK))]
    assert "hook-succeeded" in hooks[0]["helm.sh/hook-delete-policy"]
    # one that stays is the release's: the next install would refuse another's
    assert hooks[0]["meta.helm.sh/release-name"] == "demo"
    assert account["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    weights = [int(each["helm.sh/hook-weight"]) for each in hooks]
    assert weights == sorted(set(weights))


@pytest.mark.parametrize("mode", ["secrets", "production", "bare"])
def test_check_has_the_pod_of_the_workers_but_for_its_command(chart: Chart, mode: str) -> None:
    rendered = chart.given({"preflight.enabled": True}, mode=mode)
    worker = one(rendered, "Deployment")["spec"]["template"]
    name = one(rendered, "Deployment")["metadata"]["name"]
    check = one(rendered, "Job", f"{name}-check")["spec"]["template"]
    [of_worker], [of_check] = (each["spec"].pop("containers") for each in (worker, check))
    assert check["spec"]["volumes"].pop()["name"] == "running"
    assert of_check["volumeMounts"].pop()["name"] == "running"
    serves = {"args", "name", "ports", "livenessProbe", "readinessProbe", "startupProbe"}
    assert of_worker.keys() - of_check.keys() == serves - {"args", "name"}
    assert {key: value for key, value in of_check.items() if key not in serves} == {
        key: value for key, value in of_worker.items() if key not in serves
    }
    for pod in (worker, check):
        for key in ("restartPolicy", "terminationGracePeriodSeconds", "topologySpreadConstraints"):
            pod["spec"].pop(key, None)
        del pod["spec"]["volumes"][0]["configMap"]["name"]
        del pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"]
        assert pod["metadata"]["labels"].pop("app.kubernetes.io/component") in ("worker", "check")
    assert check == worker


@pytest.mark.parametrize(
    ("mode", "options", "connects"),
    [
        ("kafka", (), True),
        ("kafka", ("--is-upgrade",), True),
        ("trial", (), False),  # the store comes with the install itself
        ("trial", ("--is-upgrade",), True),
    ],
)
def test_check_asks_store_and_brokers_that_are_there(
    chart: Chart, mode: str, options: tuple[str, ...], connects: bool
) -> None:
    rendered = chart.template("-f", str(values_of(mode)), *options)
    arguments = container_of(rendered, *CHECK)["args"]
    assert arguments[:3] == ["config", "check", "/etc/duebridge/duebridge.yaml"]
    assert ("--connect" in arguments) is connects


@pytest.mark.parametrize("check", [CHECK, ROLLBACK])
def test_check_compares_with_the_configuration_of_the_workers(
    chart: Chart, check: tuple[str, str]
) -> None:
    rendered = chart.mode("kafka")
    of_workers = pod_of(rendered)["volumes"][0]["configMap"]["name"]
    mount = container_of(rendered, *check)["volumeMounts"][-1]
    volume = pod_of(rendered, *check)["volumes"][-1]
    assert (mount["name"], volume["name"]) == ("running", "running")
    # before the first install there is none
    assert volume["configMap"] == {"name": of_workers, "optional": True}
    arguments = container_of(rendered, *check)["args"]
    file = arguments[arguments.index("--running") + 1]
    assert file == f"{mount['mountPath']}/duebridge.yaml"


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
        ("spark-cronjob", "create job --from=cronjob/demo-duebridge-hydrate hydrate-now"),
    ],
)
def test_notes_warn_of_what_is_risky(chart: Chart, mode: str, said: str) -> None:
    assert said in notes(chart, mode)
