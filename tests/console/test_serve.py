"""`duebridge serve` has the console at `/`, beside the interface for programs."""

import signal
from pathlib import Path

import httpx

from tests.support.command import CONFIG, Command, wait_until
from tests.support.servers import free_port, listens, redis_server


def test_serve_has_the_console_beside_the_interface(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes") as redis_port:
        port = free_port()
        text = f"{CONFIG}serve: {{{{listen: '127.0.0.1:{port}'}}}}\n"
        command = Command(tmp_path, f"redis://127.0.0.1:{redis_port}/0", text)
        process = command.start("serve")
        try:
            wait_until(lambda: listens(port), "duebridge serve")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                page = client.get("/")
                assert "<h1>Overview</h1>" in page.text
                assert "reminders" in page.text
                assert client.get("/v1/routes").status_code == 200
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
