"""`duebridge serve` behind its Service: posts of a pod go on while its own pods are replaced."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from duebridge.http.tokens import digest_of, new_secret
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


@pytest.fixture
def host(bridge: Bridge) -> str:
    """Install the bridge with its HTTP interface, and return the name of its Service."""
    token = {"name": "posts", "sha256": digest_of(SECRET), "scopes": ["schedule"], "routes": ["*"]}
    secret = f"{bridge.name}-tokens"
    metadata = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret}}
    bridge.kube.apply({**metadata, "stringData": {"tokens.yaml": yaml.safe_dump([token])}})
    serve = {"listen": "0.0.0.0:8480", "tokens": "${file:/secrets/http/tokens.yaml}"}
    bridge.install(
        config={**bridge.values["config"], "serve": serve},
        secrets={**bridge.values["secrets"], "files": {"http": {"secret": secret}}},
        serve={"enabled": True, "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}},
        replicas=1,
    )
    return f"{bridge.name}-http"


def pods_of(bridge: Bridge) -> set[str]:
    labels = f"app.kubernetes.io/instance={bridge.name},app.kubernetes.io/component=http"
    found = bridge.kube.get("pods", "-l", labels)["items"]
    living = [each["metadata"] for each in found if "deletionTimestamp" not in each["metadata"]]
    return {str(each["name"]) for each in living}


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
