#!/opt/duebridge/bin/python
"""What a container of the Spark image runs: a command of duebridge, or a part of Spark.

Spark on Kubernetes starts its pods with `driver` and `executor` as first word, and leaves the rest
in variables; this does what the script of Spark's own image does with them.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence

COMMAND = "/opt/duebridge/bin/duebridge"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
EXECUTOR_OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(given: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return what to run for the words of a container, in its environment."""
    match list(given):
        case ["driver", *rest]:
            return _driver(rest, variables)
        case ["executor", *_]:
            return _executor(variables)
        case words:
            return [COMMAND, *words]


def _driver(rest: list[str], variables: Mapping[str, str]) -> list[str]:
    address = variables["SPARK_DRIVER_BIND_ADDRESS"]
    words = [f"{variables['SPARK_HOME']}/bin/spark-submit", "--deploy-mode", "client"]
    words += ["--conf", f"spark.driver.bindAddress={address}"]
    words += ["--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"]
    return [*words, *rest]


def _executor(variables: Mapping[str, str]) -> list[str]:
    options = {name: value for name, value in variables.items() if "SPARK_JAVA_OPT_" in name}
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    places = [variables.get("SPARK_CONF_DIR"), variables.get("SPARK_CLASSPATH")]
    places += [f"{variables['SPARK_HOME']}/jars/*", variables.get("SPARK_DIST_CLASSPATH")]
    words = ["java", *(options[name] for name in sorted(options, key=_number))]
    words += [f"-Xms{memory}", f"-Xmx{memory}", "-cp", ":".join(filter(None, places)), BACKEND]
    return [*words, *(word for pair in EXECUTOR_OPTIONS.items() for word in _pair(pair, variables))]


def _number(name: str) -> int:
    return int(re.sub(r"\D", "", name))


def _pair(pair: tuple[str, str], variables: Mapping[str, str]) -> tuple[str, str]:
    return pair[0], variables[pair[1]]


if __name__ == "__main__":
    words = command(sys.argv[1:], os.environ)
    os.execvp(words[0], words)
