"""`duebridge serve` behind its Service: posts while its pods are replaced, and the console."""

import copy
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from duebridge.http.tokens import digest_of, new_secret
from tests.deploy.chart import Object, values_of
from tests.deploy.cluster.bridge import Bridge
from tests.deploy.cluster.kube import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SECRET = new_secret()
POSTS = 400
# Each post is repeated under its key until it is answered; with the pauses all outlast a rollout.
PROGRAM = """
import json, time, urllib.error, urllib.request

def post(number):
    headers = {{"Authorization": "Bearer {secret}", "Content-Type": "application/json",
               "Idempotency-Key": f"post-{{number}}"}}
    body = json.dumps({{"body": "x", "delay": "1s"}}).encode()
    request = urllib.request.Request("http://{host}/v1/routes/kafka/envelopes", body, headers)
    for _ in range(100):
        try:
            return json.load(urllib.request.urlopen(request, timeout=10))
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"post {{number}} got no answer")

for number in range({posts}):
    print(post(number)["id"], flush=True)
    time.sleep(0.03)
"""
# As a browser does: the overview leads to the log-in, and that one back. Any pod may answer.
LOOK = """
import http.cookiejar, json, urllib.error, urllib.parse, urllib.request

opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

def get(path, **form):
    data = urllib.parse.urlencode(form).encode() if form else None
    try:
        answer = opener.open("http://{host}" + path, data, timeout=20)
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, answer.url, answer.read().decode()

found = {{"before": get("/"), "wrong": get("/login", token="wrong")}}
found |= {{"after": get("/login", token="{secret}"), "looks": [get("/") for _ in range({looks})]}}
print(json.dumps(found))
"""
LOOKS = 20
GET = """
import json, urllib.error, urllib.request

headers = {{"Authorization": "Bearer {secret}"}}
request = urllib.request.Request("http://{host}/v1/routes/kafka/envelopes/absent", None, headers)
try:
    urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, json.load(error)["detail"]]))
"""
RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}}


def write_tokens(bridge: Bridge, secret: str, scope: str) -> None:
    token = {"name": "posts", "sha256": digest_of(SECRET), "scopes": [scope], "routes": ["*"]}
    metadata = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}}
    bridge.kube.apply({**metadata, "stringData": {"tokens.yaml": yaml.safe_dump([token])}})


def install_serve(bridge: Bridge, config: Object, scope: str, **serve: Any) -> str:
    """Install the bridge with its HTTP interface, and return the name of its Service."""
    secret = f"{bridge.name}-tokens"
    write_tokens(bridge, secret, scope)
    listen = {"listen": "0.0.0.0:8480", "tokens": "${file:/secrets/http/tokens.yaml}"}
    bridge.install(
        config={**config, "serve": listen},
        secrets={**bridge.values["secrets"], "files": {"http": {"secret": secret}}},
        serve={"enabled": True, "resources": RESOURCES, **serve},
        replicas=1,
    )
    return f"{bridge.name}-http"


@pytest.fixture
def host(bridge: Bridge) -> str:
    return install_serve(bridge, bridge.values["config"], "schedule")


def pods_of(bridge: Bridge) -> set[str]:
    found = bridge.pods_of("app.kubernetes.io/component=http")
    return {str(each["metadata"]["name"]) for each in found}


def test_posts_while_the_pods_are_replaced_lose_and_double_nothing(
    bridge: Bridge, host: str
) -> None:
    before = pods_of(bridge)
    assert len(before) == 2
    program = PROGRAM.format(secret=SECRET, host=host, posts=POSTS)
    with ThreadPoolExecutor(1) as pool:
        posting = pool.submit(bridge.python, bridge.pod(), program)
        bridge.kube.kubectl("rollout", "restart", f"deployment/{host}")
        bridge.kube.kubectl("rollout", "status", f"deployment/{host}", "--timeout=90s")
        ids = posting.result().split()
    until(lambda: not before & pods_of(bridge), "the former pods to end")
    assert len(set(ids)) == POSTS
    bridge.accepted |= set(ids)
    bridge.settle_once()


def test_look_up_in_sparks_image_reads_the_cold_tier(bridge: Bridge) -> None:
    """The workers' image has no package that does: 503 there."""
    image = os.environ.get("DUEBRIDGE_K8S_SPARK_IMAGE")
    if not image:
        pytest.skip("set DUEBRIDGE_K8S_SPARK_IMAGE")
    repository, _, tag = image.rpartition(":")
    config = copy.deepcopy(bridge.values["config"])
    config["routes"]["kafka"]["cold_tier"] = {"path": "/cold", "horizon": "1h"}
    host = install_serve(
        bridge,
        config,
        "read",
        image={"repository": repository, "tag": tag},
        extraVolumes=[{"name": "cold", "emptyDir": {}}],
        extraVolumeMounts=[{"name": "cold", "mountPath": "/cold", "readOnly": True}],
    )
    found = json.loads(bridge.python(bridge.pod(), GET.format(secret=SECRET, host=host)))
    assert found[0] == 404, found
    assert "nor has the cold tier it" in found[1]


@pytest.fixture
def console(bridge: Bridge) -> str:
    """Install ci/console-values.yaml, but for addresses; return the name of its Service."""
    given = yaml.safe_load(values_of("console").read_text("utf-8"))
    files = given["secrets"]["files"]
    write_tokens(bridge, files["http"]["secret"], "read")
    config = {**given["config"], "store": bridge.values["config"]["store"]}
    config["brokers"]["orders"]["bootstrap_servers"] = [bridge.stack.kafka]
    config["routes"]["reminders"]["target"]["topic"] = bridge.name
    serve = {**given["serve"], "resources": RESOURCES}
    bridge.install(config=config, secrets={"files": files}, serve=serve, replicas=1)
    return f"{bridge.name}-http"


def test_console_opens_by_a_token_at_every_pod_of_its_service(bridge: Bridge, console: str) -> None:
    until(lambda: len(pods_of(bridge)) == 2, "the autoscaler's least number of pods")
    bridge.kube.kubectl("rollout", "status", f"deployment/{console}", "--timeout=90s")
    program = LOOK.format(secret=SECRET, host=console, looks=LOOKS)
    found = json.loads(bridge.python(bridge.pod(), program))
    status, url, page = found["before"]
    assert (status, url) == (200, f"http://{console}/login")
    assert "<h1>Log in</h1>" in page
    assert found["wrong"][0] == 401
    for status, url, page in (found["after"], *found["looks"]):
        assert (status, url) == (200, f"http://{console}/")
        assert "<h1>Overview</h1>" in page
        assert "reminders" in page
