"""The names that other people's programs import."""

import subprocess
import sys

import duebridge


def test_import_of_the_public_names_works() -> None:
    for name in (
        "AsyncProducer",
        "Envelope",
        "Producer",
        "Receipt",
        "Known",
        "Target",
        "EnvelopeError",
    ):
        assert name in duebridge.__all__
        assert hasattr(duebridge, name)


def test_import_of_the_core_loads_no_broker_client_and_no_tracing() -> None:
    heavy = "{'kafka', 'pika', 'pyspark', 'duebridge.telemetry.spans', 'duebridge.telemetry.spans'}"
    program = f"import sys, duebridge; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"set()\n"
