"""The check before an install, an upgrade or a rollback: its pod, its account, what it compares."""

from copy import deepcopy
from pathlib import Path

import pytest

from tests.deploy.api_server import api_server
from tests.deploy.chart import (
    MODES,
    Chart,
    Object,
    configuration,
    container_of,
    is_hook,
    objects,
    one,
    pod_of,
    values_of,
    with_define,
)

HOOK = "helm.sh/hook"
CHECK = ("Job", "demo-duebridge-check")
ROLLBACK = ("Job", "demo-duebridge-check-rollback")
SEEN = "true"


def accounts_of_checks(rendered: list[Object]) -> list[Object]:
    return [each for each in rendered if each["kind"] == "ServiceAccount" and is_hook(each)]


def test_check_runs_before_every_change_and_its_log_stays(chart: Chart) -> None:
    for mode in MODES:
        if mode != "bare":
            assert_check_runs_before_every_change(deepcopy(chart.mode(mode)))


def assert_check_runs_before_every_change(rendered: list[Object]) -> None:
    checks = [one(rendered, *each) for each in (CHECK, ROLLBACK)]
    annotations = [each["metadata"]["annotations"] for each in checks]
    # of two names, so that the rollback of an upgrade leaves what stopped it to be read
    assert [each[HOOK] for each in annotations] == ["pre-install,pre-upgrade", "pre-rollback"]
    assert not any("hook-failed" in each["helm.sh/hook-delete-policy"] for each in annotations)
    for (
        each
    ) in checks:  # of an install without a cluster in sight the first has an account of its own
        each["spec"]["template"]["spec"].pop("serviceAccountName")
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
    [account] = accounts_of_checks(rendered)
    assert account["metadata"]["name"] == pod["serviceAccountName"]
    hooks = [each["metadata"]["annotations"] for each in (account, made, one(rendered, *CHECK))]
    assert "hook-succeeded" in hooks[0]["helm.sh/hook-delete-policy"]
    # one that stays is the release's: the next install would refuse another's
    assert hooks[0]["meta.helm.sh/release-name"] == "demo"
    assert account["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    weights = [int(each["helm.sh/hook-weight"]) for each in hooks]
    assert weights == sorted(set(weights))


@pytest.mark.parametrize("mode", ["secrets", "production", "bare"])
def test_check_has_the_pod_of_the_workers_but_for_its_command(
    chart: Chart, tmp_path: Path, mode: str
) -> None:
    folder = with_define(tmp_path / "chart", "duebridge.seesAccount", SEEN)
    given = ("-f", str(values_of(mode)), "--set=preflight.enabled=true")
    rendered = list(objects(chart.run("template", "demo", str(folder), *given)))
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


@pytest.mark.parametrize("is_there", [False, True])
def test_check_before_an_upgrade_asks_the_bundled_store_if_it_is_there(
    chart: Chart, tmp_path: Path, is_there: bool
) -> None:
    """After an install that its check ended, the next one is an upgrade, and nothing is there."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    store = [one(chart.mode("trial"), "StatefulSet")] * is_there
    with api_server([account, *store], tmp_path) as options:
        given = ("--is-upgrade", "-f", str(values_of("trial")))
        rendered = chart.template(*options, *given)
    for check in (CHECK, ROLLBACK):
        assert ("--connect" in container_of(rendered, *check)["args"]) is is_there


def test_check_may_reach_what_the_new_rules_name_before_they_are_the_workers_own(
    chart: Chart,
) -> None:
    rendered = chart.mode("production")
    own = one(rendered, "NetworkPolicy", "demo-duebridge-check")
    annotations = own["metadata"]["annotations"]
    assert annotations[HOOK] == "pre-install,pre-upgrade,pre-rollback"
    assert int(annotations["helm.sh/hook-weight"]) < 0, "before the Job"
    assert "hook-failed" in annotations["helm.sh/hook-delete-policy"], "it never stays"
    assert own["spec"]["policyTypes"] == ["Egress"]
    assert own["spec"]["egress"] == one(rendered, "NetworkPolicy")["spec"]["egress"]
    labels = one(rendered, *CHECK)["spec"]["template"]["metadata"]["labels"]
    selected = own["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= labels.items()
    assert selected["app.kubernetes.io/component"] == "check"
    restricted = {
        "networkPolicy.egress": [{"ports": [{"port": 1}]}],
        "networkPolicy.enabled": False,
    }
    for values in ({}, restricted):
        names = {each["metadata"]["name"] for each in chart.given(values) if is_policy(each)}
        assert "demo-duebridge-check" not in names


def is_policy(rendered: Object) -> bool:
    return bool(rendered["kind"] == "NetworkPolicy")


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


@pytest.mark.parametrize(
    ("seen", "account", "is_made"),
    [
        (
            (),
            "demo-duebridge-check",
            True,
        ),  # no cluster, or no namespace: the live one may be there
        (("default",), "demo-duebridge", True),  # before an install
        (("default", "demo-duebridge"), "demo-duebridge", False),  # before an upgrade
    ],
)
def test_account_of_the_check_is_never_the_live_one(
    chart: Chart, tmp_path: Path, seen: tuple[str, ...], account: str, is_made: bool
) -> None:
    names = " ".join(f'"{each}"' for each in ("", *seen))
    body = f"{{{{- if has (last .) (list {names}) }}}}true{{{{ end -}}}}"
    folder = with_define(tmp_path / "chart", "duebridge.seesAccount", body)
    words = ("template", "demo", str(folder), "-f", str(values_of("kafka")))
    rendered = list(objects(chart.run(*words)))
    assert pod_of(rendered, *CHECK)["serviceAccountName"] == account
    # a hook makes no account before a rollback: there is the workers' own
    assert pod_of(rendered, *ROLLBACK)["serviceAccountName"] == "demo-duebridge"
    assert pod_of(rendered)["serviceAccountName"] == "demo-duebridge"
    made = [each["metadata"]["name"] for each in accounts_of_checks(rendered)]
    assert made == [account] * is_made


def test_check_of_an_account_that_the_chart_does_not_make_has_that_one(chart: Chart) -> None:
    account = {"serviceAccount": {"create": False, "name": "ours"}}
    rendered = chart.given(account)
    assert pod_of(rendered, *CHECK)["serviceAccountName"] == "ours"
    assert not accounts_of_checks(rendered)


@pytest.mark.parametrize(("installed", "compared"), [("ours", "ours"), ("", "demo-duebridge")])
def test_check_compares_with_what_the_workers_mount_if_helm_sees_them(
    chart: Chart, tmp_path: Path, installed: str, compared: str
) -> None:
    """After a ConfigMap of the user's own, the release's is not there yet."""
    folder = with_define(tmp_path / "chart", "duebridge.installedConfigMap", installed)
    words = ("template", "demo", str(folder), "-f", str(values_of("kafka")))
    rendered = list(objects(chart.run(*words)))
    for check, name in [(CHECK, compared), (ROLLBACK, "demo-duebridge")]:
        running = pod_of(rendered, *check)["volumes"][-1]
        assert running["configMap"] == {"name": name, "optional": True}
