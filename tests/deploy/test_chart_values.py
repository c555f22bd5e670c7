"""values.yaml and its schema: one source with duebridge.yaml, and wrong values are refused."""

import json
from pathlib import Path

import pytest
import yaml

from deploy.helm import schema
from deploy.helm.values import Values
from duebridge.config.schema import config_schema
from tests.deploy.chart import FOLDER, Chart, ChartRefused
from tests.support.checkout import ROOT

EXAMPLE = ROOT / "docs" / "duebridge.example.yaml"
VALUES = yaml.safe_load((FOLDER / "values.yaml").read_text("utf-8"))


def test_schema_of_the_chart_is_what_the_models_say() -> None:
    remedy = "run python -m deploy.helm.schema"
    assert schema.PATH.read_text("utf-8") == schema.text(), remedy


def test_config_in_values_has_the_words_of_the_file() -> None:
    of_file, of_values = config_schema(), schema.values_schema()
    assert of_values["$defs"]["Config"]["properties"] == of_file["properties"]
    assert of_file["$defs"].items() <= of_values["$defs"].items()
    assert not Values.model_json_schema()["$defs"].keys() & of_file["$defs"].keys()


def test_values_are_the_defaults_of_the_models() -> None:
    defaults = Values().model_dump(mode="json", by_alias=True)
    del defaults["global"]
    assert {key: value for key, value in VALUES.items() if key != "config"} == defaults


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
    ],
)
def test_wrong_value_is_refused_by_its_place(
    chart: Chart, values: dict[str, object], named: str
) -> None:
    with pytest.raises(ChartRefused, match=named):
        chart.given(values)


def test_values_without_routes_are_refused(chart: Chart) -> None:
    with pytest.raises(ChartRefused, match=r"brokers.*routes"):
        chart.template()


def test_chart_in_another_chart_may_have_global_values(chart: Chart) -> None:
    assert chart.given({"global": {"cluster": "a"}})


def test_program_of_the_chart_is_this_one() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    about = yaml.safe_load((FOLDER / "Chart.yaml").read_text("utf-8"))
    assert f'version = "{about["appVersion"]}"' in project
