"""What is written of the interface is what it does: the OpenAPI description, docs/http.md.

Requests drawn from the description find no answer that it does not have.
"""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import jsonschema
import pytest
import schemathesis
import yaml
from schemathesis.checks import not_a_server_error
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from duebridge.http.app import OPERATIONS
from duebridge.http.openapi import CONTRACTS, description
from tests.support.checkout import ROOT
from tests.support.serving import NDJSON, SECRETS, Served, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
EXAMPLES = 25
DOCUMENT = description(OPERATIONS)
HANDLERS = {
    operation.handler.__name__ for methods in OPERATIONS.values() for operation in methods.values()
}
SCHEMA: Any = schemathesis.openapi.from_dict(DOCUMENT)
LABELED = {each.ok().label: each.ok() for each in SCHEMA.get_all_operations()}
DRAWN = [(label, GenerationMode.POSITIVE) for label in LABELED]
DRAWN += [(label, GenerationMode.NEGATIVE) for label in LABELED if label[:2] in ("PA", "PO")]


def test_every_operation_is_described_once() -> None:
    assert CONTRACTS.keys() == HANDLERS
    described = [
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    ]
    assert sorted(described) == sorted(HANDLERS)


def test_description_is_what_the_server_shows(served: Served) -> None:
    assert httpx.get(f"{served.url}/openapi.json").json() == json.loads(json.dumps(DOCUMENT))


def examples() -> list[tuple[str, dict[str, Any], Any]]:
    """Every example of the description, with its schema."""
    found: list[tuple[str, dict[str, Any], Any]] = []
    for methods in DOCUMENT["paths"].values():
        for operation in methods.values():
            parts = [*operation["responses"].values(), operation.get("requestBody", {})]
            for kind, content in (
                item for part in parts for item in part.get("content", {}).items()
            ):
                given = [each["value"] for each in content.get("examples", {}).values()]
                given += [content["example"]] if "example" in content else []
                name = f"{operation['operationId']} {kind}"
                found += [(name, content["schema"], each) for each in given]
    return found


@pytest.mark.parametrize(("name", "kind", "example"), examples())
def test_example_is_of_its_schema(name: str, kind: dict[str, Any], example: Any) -> None:
    whole = {**kind, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(example)


def test_every_example_of_a_request_is_taken(served: Served, client: httpx.Client) -> None:
    operation = DOCUMENT["paths"]["/v1/routes/{route}/envelopes"]["post"]
    for kind, content in operation["requestBody"]["content"].items():
        for example in (each["value"] for each in content["examples"].values()):
            given = {"content": example} if isinstance(example, str) else {"json": example}
            path = "/v1/routes/orders/envelopes?on_conflict=replace"
            answer = client.post(path, headers={"Content-Type": kind}, **given)
            assert answer.status_code in (200, 201), answer.text
    assert NDJSON["Content-Type"] in operation["requestBody"]["content"]


@pytest.mark.parametrize(("label", "mode"), DRAWN)
def test_any_request_gets_an_answer_of_the_description(
    served: Served, label: str, mode: GenerationMode
) -> None:
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=LABELED[label].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if "route" in case.path_parameters:
            case.path_parameters["route"] = "orders"
        headers = {"Authorization": f"Bearer {SECRETS['all']}"}
        case.call_and_validate(base_url=served.url, headers=headers, checks=CHECKS)

    check()


PAGE = (ROOT / "docs" / "http.md").read_text()
URL = "http://127.0.0.1:8480"


def run(served: Served, block: str) -> list[str]:
    """Run a block of the page; returns the lines that it printed."""
    script = "set -euo pipefail\n" + block.replace(URL, served.url)
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().replace("}{", "}\n{").splitlines()


def test_page_says_what_its_commands_do(tmp_path: Path, store_url: str) -> None:
    whole, tokens = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config = yaml.safe_load(whole)
    assert yaml.safe_load(tokens)["serve"].keys() == {"listen", "tokens", "rate"}
    with serving(tmp_path / "page", store_url, config, tokens=None) as served:
        one, again, many, event = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
        said = run(served, one)
        statuses = re.findall(r'"(?:status|state)":"(\w+)"', "\n".join(said))
        changed = ["accepted", "pending", "rescheduled", "cancelled"]
        assert statuses == [*changed, "accepted", "rescheduled"]
        twice = "\n".join(run(served, again))
        assert twice.count("201 Created") == 2
        assert len(set(re.findall(r'"id":"(\w+)"', twice))) == 1
        assert twice.lower().count("idempotency-replayed: true") == 1
        statuses = [re.findall(r'"status":"(\w+)"', line)[0] for line in run(served, many)]
        assert statuses == ["accepted", "refused", "accepted"]
        assert '"id":"/orders|42"' in run(served, event)[0]
