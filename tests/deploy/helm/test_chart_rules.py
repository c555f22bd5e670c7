"""Who may ask, how pods drain and are kept apart, in our words and those of other charts."""

import pytest

from tests.deploy.chart import Chart, ChartRefused, Object, one, pod_of, pod_templates, values_of

WORKER, HTTP, INTAKE = "demo-duebridge", "demo-duebridge-http", "demo-duebridge-retries"
NODES = "kubernetes.io/hostname"


@pytest.fixture(scope="module")
def rendered(chart: Chart) -> list[Object]:
    return chart.mode("bitnami")


def test_network_policy_lets_probes_in_and_with_rules_only_those_and_dns_out(
    chart: Chart,
) -> None:
    plain = one(chart.mode("kafka"), "NetworkPolicy")["spec"]
    assert plain["ingress"] == [{"ports": [{"port": "health"}]}]
    assert plain["policyTypes"] == ["Ingress"]
    policy = one(chart.mode("production"), "NetworkPolicy")["spec"]
    dns, *given = policy["egress"]
    assert dns == {"ports": [{"port": 53, "protocol": kind} for kind in ("UDP", "TCP")]}
    assert [rule["ports"] for rule in given] == [[{"port": 6379}, {"port": 9092}]]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["ingress"][0]["from"][0].keys() == {"namespaceSelector"}


def test_network_policy_lets_workers_reach_the_bundled_store(chart: Chart) -> None:
    rendered = chart.mode("trial-volume")
    rules = one(rendered, "NetworkPolicy", "demo-duebridge")["spec"]["egress"]
    [to_store] = [rule for rule in rules if rule["ports"] == [{"port": 6379}]]
    labels = one(rendered, "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    selected = to_store["to"][0]["podSelector"]["matchLabels"]
    assert selected.items() <= labels.items()


def test_network_policies_have_the_rules_of_other_charts(rendered: list[Object]) -> None:
    for name, port in [(WORKER, "health"), (HTTP, "http")]:
        spec = one(rendered, "NetworkPolicy", name)["spec"]
        own, extra = spec["ingress"]
        assert own["ports"] == [{"port": port}]
        release, client, elsewhere = own["from"]
        labels = release["podSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/instance"] == "demo"
        assert client == {"podSelector": {"matchLabels": {"demo-duebridge-client": "true"}}}
        assert elsewhere == {
            "namespaceSelector": {"matchLabels": {"team": "monitoring"}},
            "podSelector": {"matchLabels": {"app": "prometheus"}},
        }
        assert extra["ports"] == [{"port": 8480}]
        dns, stores = spec["egress"]
        assert [each["port"] for each in dns["ports"]] == [53, 53]
        assert stores == {"ports": [{"port": 6379}, {"port": 9092}]}


def test_network_policy_that_names_who_may_ask_keeps_them(chart: Chart) -> None:
    given = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
    closed = {"networkPolicy.from": given, "networkPolicy.allowExternal": False}
    no_label = {**closed, "networkPolicy.addExternalClientAccess": False}
    pods = {"networkPolicy.ingressPodMatchLabels": {"app": "grafana"}}
    for values, count in [(closed, 3), (no_label, 2), (no_label | pods, 3)]:
        [rule] = one(chart.given(values), "NetworkPolicy")["spec"]["ingress"]
        assert rule["from"][0] == given[0]
        assert len(rule["from"]) == count


@pytest.mark.parametrize("extra", [[], [{"ports": [{"port": 6379}]}]])
def test_extra_egress_restricts_nothing_by_itself(chart: Chart, extra: list[Object]) -> None:
    spec = one(chart.given({"networkPolicy.extraEgress": extra}), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec


def test_budgets_are_those_of_other_charts_words(rendered: list[Object]) -> None:
    for name in (WORKER, HTTP, INTAKE):
        assert one(rendered, "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 2, name


@pytest.mark.parametrize("least", [1, 2, "34%", "66%"])
def test_least_number_of_pods_is_kept_if_one_of_them_may_go(chart: Chart, least: int | str) -> None:
    replicas = {"replicaCount": 3, "serve.replicaCount": 4}
    rendered = chart.given({"pdb": {"minAvailable": least}, **replicas}, mode="bitnami-skeleton")
    spec = one(rendered, "PodDisruptionBudget")["spec"]
    assert (spec["minAvailable"], spec["unhealthyPodEvictionPolicy"]) == (least, "AlwaysAllow")
    assert "maxUnavailable" not in spec


INTAKE_A = {
    "config.intakes.a": {"source": {"broker": "orders", "topic": "a"}, "route": "reminders"}
}


@pytest.mark.parametrize(
    ("values", "pods"),
    [
        ({"pdb": {"minAvailable": 2}}, 2),
        ({"pdb": {"minAvailable": "51%"}}, 2),
        ({"pdb": {"minAvailable": "100%"}, "replicaCount": 9}, 9),
        ({"pdb": {"minAvailable": 1}, "scaling.mode": "hpa"}, 1),
        (
            {"pdb": {"minAvailable": 2}, "replicaCount": 3, "intakeWorkers": {"a": {}}, **INTAKE_A},
            0,
        ),
        (
            {
                "pdb": {"minAvailable": 2},
                "replicaCount": 3,
                "intakeWorkers.a.replicas": 2,
                **INTAKE_A,
            },
            2,
        ),
    ],
)
def test_least_number_of_pods_that_would_hold_a_drain_is_refused(
    chart: Chart, values: Object, pods: int
) -> None:
    if not pods:
        assert chart.given(values)
        return
    with pytest.raises(ChartRefused, match=rf"pdb\.minAvailable: expected .* all of {pods} pods"):
        chart.given(values)


@pytest.mark.parametrize("values", [{"pdb.create": False}, {"podDisruptionBudget.enabled": False}])
def test_budget_that_either_word_takes_away_is_not_made(chart: Chart, values: Object) -> None:
    rendered = chart.given({"pdb.create": True, **values}, mode="serve")
    assert "PodDisruptionBudget" not in {each["kind"] for each in rendered}


def test_pods_of_a_deployment_are_kept_apart_as_asked(chart: Chart, rendered: list[Object]) -> None:
    components = {WORKER: "worker", HTTP: "http", INTAKE: "intake"}
    for name, component in components.items():
        affinity = pod_of(rendered, "Deployment", name)["affinity"]["podAntiAffinity"]
        [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        # else no new pod finds a node while the old ones hold them all
        assert term["matchLabelKeys"] == ["pod-template-hash"]
        labels = term["labelSelector"]["matchLabels"]
        assert (term["topologyKey"], labels["app.kubernetes.io/component"]) == (NODES, component)
        template = dict(pod_templates(rendered))[f"Deployment/{name}"]
        assert labels.items() <= template["metadata"]["labels"].items()
    assert "affinity" not in pod_of(rendered, "Job", "demo-duebridge-check")
    soft = pod_of(chart.mode("bitnami-skeleton"))["affinity"]["podAntiAffinity"]
    [choice] = soft["preferredDuringSchedulingIgnoredDuringExecution"]
    assert choice["podAffinityTerm"]["topologyKey"] == NODES
    own: Object = {"podAffinity": {}}
    given = chart.given({"affinity": own, "podAntiAffinityPreset": "hard"})
    assert pod_of(given)["affinity"] == own


def test_pods_are_kept_apart_without_keys_that_kubernetes_does_not_know_yet(chart: Chart) -> None:
    old = ("--kube-version=1.30.0", "-f", str(values_of("bitnami")))
    affinity = pod_of(chart.template(*old))["affinity"]["podAntiAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert "matchLabelKeys" not in term
