"""values.yaml and its schema: one source with duebridge.yaml, and wrong values are refused.

Every object of every mode is what API servers and operators accept. `schemas/` has strict schemas
(an unknown key is refused): of the oldest Kubernetes that Chart.yaml accepts, out of the wheel
kubernetes-validate, and of the operators' custom resources.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from deploy.helm import schema, table
from deploy.helm.values import Values
from duebridge.config.schema import config_schema
from tests.deploy.chart import (
    FOLDER,
    MODES,
    Chart,
    ChartRefused,
    Object,
    is_hook,
    loaded,
    one,
    values_of,
)
from tests.support.checkout import ROOT

EXAMPLE = ROOT / "docs" / "duebridge.example.yaml"
HYDRATE = {"run": "hydrate", "args": ["a"], "schedule": "@daily"}
WRONG_KEYS = {
    "intakeWorkers": "a_b",
    "spark.jobs": "A",
    "secrets.files": "a_b",
    "secrets.env": "a-b",
    "env": "a-b",
}
NO_BUDGET = (0, "0%", "101%", -1)
VALUES = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))


def test_schema_of_the_chart_is_what_the_models_say() -> None:
    remedy = "run python -m deploy.helm.schema"
    assert schema.PATH.read_text("utf-8") == schema.text(), remedy


def test_table_of_the_readme_has_every_value_as_it_is() -> None:
    page = table.README.read_text("utf-8")
    assert page == table.filled(page), "run make api"


def test_table_says_of_a_value_what_its_comments_say() -> None:
    plain = "# Two\n# lines.\na: 1\n\nb:  # of it\n  # Above.\n  c: {}  # a | b\n"
    text = f"{plain}  resources:\n    d: 1\n"
    assert list(table.rows(text)) == [
        table.Row("a", "1", "Two lines."),
        table.Row("b", "", "of it"),
        table.Row("b.c", "{}", "Above. a | b"),
        table.Row("b.resources", '{"d": 1}', ""),
    ]
    assert r"| `b.c` | `{}` | Above. a \| b |" in table.table(text)


def test_config_in_values_has_the_words_of_the_file() -> None:
    of_file, of_values = config_schema(), schema.values_schema()
    assert of_values["$defs"]["Config"]["properties"] == of_file["properties"]
    assert of_file["$defs"].items() <= of_values["$defs"].items()
    assert not Values.model_json_schema()["$defs"].keys() & of_file["$defs"].keys()


def without_null(values: Any) -> Any:
    """Return values without those that are null, at any depth."""
    if not isinstance(values, dict):
        return values
    return {key: without_null(value) for key, value in values.items() if value is not None}


def test_values_are_the_defaults_of_the_models() -> None:
    defaults = Values().model_dump(mode="json", by_alias=True, exclude_none=True)
    given = {key: value for key, value in VALUES.items() if key != "config"}
    assert without_null(given) == defaults


def test_example_of_every_setting_is_taken_as_config(chart: Chart, tmp_path: Path) -> None:
    values = {"config": yaml.safe_load(EXAMPLE.read_text("utf-8"))}
    # an example of the file, with a default that holds a password: see the refusal of those
    values["config"]["brokers"]["billing"]["url"] = "${RABBIT_URL}"
    file = tmp_path / "values.yaml"
    file.write_text(json.dumps(values), "utf-8")
    assert chart.template("-f", str(file))


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": 0}, "replicas"),
        ({"scaling.min": 0}, "scaling/min"),
        ({"scaling.mode": "vpa"}, "scaling/mode"),
        ({"replica": 3}, "replica"),
        ({"config.worker": {"batches": 5}}, "config/worker"),
        ({"config.worker": {"drain": 20}}, "config/worker/drain"),
        ({"config.defaults": {"retry": {"max_attempts": 0}}}, "max_attempts"),
        ({"secrets.env": {"REDIS_URL": "redis://redis"}}, "secrets/env/REDIS_URL"),
        ({"secrets.env": {"REDIS_URL": {"value": "redis://redis"}}}, "secrets/env/REDIS_URL"),
        ({"spark.jobs": {"a": {"run": "schedule", "schedule": "@daily"}}}, "spark/jobs/a/run"),
        ({"spark.jobs": {"a": {"run": "hydrate", "schedule": "daily"}}}, "spark/jobs/a/schedule"),
        ({"spark.jobs": {"n" * 38: HYDRATE}}, r"spark\.jobs\.n+: expected at most 52"),
        (
            {"spark.jobs": {"n" * 29: HYDRATE}, "spark.mode": "operator"},
            r"spark\.jobs\.n+: expected at most 43",
        ),
        # a key that Kubernetes takes for no name, whatever is beneath it
        *(
            ({place: {key: {}}}, f"at '/{place.replace('.', '/')}'.*{key}")
            for place, key in WRONG_KEYS.items()
        ),
        ({"scaling.mode": "keda"}, r"scaling\.keda\.serverAddress: expected"),
        (
            {"scaling.mode": "hpa", "scaling.min": 11},
            r"scaling\.max: expected at least scaling\.min \(11\)",
        ),
        # a budget that would block a drain
        *(({"podDisruptionBudget.maxUnavailable": each}, "maxUnavailable") for each in NO_BUDGET),
        (
            {"valkey.enabled": True, "config.store": {"url": "redis://r"}},
            r"store\.url: expected none",
        ),
    ],
)
def test_wrong_value_is_refused_by_its_place(
    chart: Chart, values: dict[str, object], named: str
) -> None:
    with pytest.raises(ChartRefused, match=named):
        chart.given(values)


def named(tmp_path: Path, block: str, word: str) -> tuple[str, str]:
    """Return the options for a configuration with a name of this block as it is written here."""
    names = {"brokers": "orders", "routes": "reminders", "intakes": "retries"} | {block: word}
    broker, route = (json.dumps(names[each].strip('"')) for each in ("brokers", "routes"))
    text = f"""
config:
  store: {{url: redis://r}}
  brokers:
    {names["brokers"]}: {{type: kafka, bootstrap_servers: ["k:9092"]}}
  routes:
    {names["routes"]}:
      target: {{broker: {broker}, topic: a}}
      dead_letter: {{broker: {broker}, topic: dead}}
  intakes:
    {names["intakes"]}: {{source: {{broker: {broker}, topic: b}}, route: {route}}}
"""
    (file := tmp_path / "values.yaml").write_text(text, "utf-8")
    return "-f", str(file)


MISREAD = [
    *(("routes", word) for word in ("no", "off", "n", "on", "yes", "y", "true")),
    *(("routes", word) for word in ("0123", "1_000", "0x10", "1e3", "1.10", "1e-5", "0", "83")),
    *((block, "0123") for block in ("brokers", "intakes")),
]


@pytest.mark.parametrize(("block", "word"), MISREAD)
def test_refuse_name_that_helm_reads_as_another_says_to_quote_it(
    chart: Chart, tmp_path: Path, block: str, word: str
) -> None:
    """As another route it would never get what producers schedule on the one that is written."""
    with pytest.raises(ChartRefused, match=rf"config\.{block}\..*: expected a name .* quote"):
        chart.template(*named(tmp_path, block, word))


@pytest.mark.parametrize("word", ["no", "y", "0123", "1_000", "0x10", "1e3", "1.10", "007", "1.0"])
def test_take_quoted_name_gives_workers_the_name_as_written(
    chart: Chart, tmp_path: Path, word: str
) -> None:
    for block in ("brokers", "routes", "intakes"):
        config = loaded(chart.template(*named(tmp_path, block, f'"{word}"')))
        assert list(getattr(config, block)) == [word]


def test_values_without_routes_are_refused(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match=r"brokers.*routes"):
        chart.template()


def test_values_whose_config_is_null_are_refused_by_its_name(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match="missing property 'config'"):
        chart.template("--set=config=null")


def test_chart_in_another_chart_may_have_global_values(chart: Chart) -> None:
    assert chart.given({"global": {"cluster": "a"}})


def test_program_of_the_chart_is_this_one() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    about = yaml.safe_load((FOLDER / "Chart.yaml").read_text("utf-8"))
    assert f'version = "{about["appVersion"]}"' in project


def test_each_define_of_the_chart_has_a_name_of_its_own() -> None:
    """Of two the one that Helm happens to parse last wins, in silence."""
    texts = [path.read_text("utf-8") for path in (FOLDER / "templates").rglob("*.*")]
    names = [name for text in texts for name in re.findall(r'\bdefine "([^"]+)"', text)]
    assert names
    assert [name for name, count in Counter(names).items() if count > 1] == []


SCHEMAS = Path(__file__).parent / "schemas"


def validators() -> Iterator[tuple[str, Draft7Validator]]:
    """Yield a validator for each kind, by `apiVersion kind`."""
    for path in SCHEMAS.glob("*.json"):
        file = json.loads(path.read_text("utf-8"))
        for kind, rules in file["kinds"].items():
            yield kind, Draft7Validator({**rules, "$defs": file["$defs"]})


VALIDATORS = dict(validators())


def errors(rendered: Object) -> list[str]:
    """Return what is wrong with an object; a kind without a schema is wrong."""
    kind = f"{rendered['apiVersion']} {rendered['kind']}"
    if kind not in VALIDATORS:
        return [f"{kind}: no schema"]
    found = VALIDATORS[kind].iter_errors(rendered)
    return [f"{kind}: {error.json_path}: {error.message[:200]}" for error in found]


@pytest.mark.parametrize("mode", MODES)
def test_render_mode_makes_only_valid_objects_each_once(chart: Chart, mode: str) -> None:
    rendered = chart.mode(mode)
    assert rendered
    assert [error for each in rendered for error in errors(each)] == []
    # the check's account is gone before the workers' one of the same name is made
    names = [(each["kind"], each["metadata"]["name"], is_hook(each)) for each in rendered]
    assert len(names) == len(set(names))


def test_lint_finds_nothing(chart: Chart) -> None:
    chart.run("lint", "--strict", "deploy/helm/duebridge", "-f", str(values_of(MODES[0])))


def test_validate_misspelled_key_or_unknown_kind_fails(chart: Chart) -> None:
    wrong = deepcopy(one(chart.mode("keda-prometheus"), "ScaledObject"))
    wrong["spec"]["minReplicas"] = wrong["spec"].pop("minReplicaCount")
    [error] = errors(wrong)
    assert "minReplicas" in error
    assert errors({**wrong, "kind": "Route"}) == ["keda.sh/v1alpha1 Route: no schema"]
