"""`make test-k8s` without a cluster, and how it gives images to one."""

from pathlib import Path

import pytest

from tests.deploy.chart import Chart
from tests.deploy.cluster import run


def test_run_where_no_cluster_answers_says_so_and_ends_with_0(
    chart: Chart,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("DUEBRIDGE_K8S_EXEC", raising=False)
    assert run.main([]) == 0
    assert "no cluster answers" in capsys.readouterr().out


def test_load_gives_every_image_by_the_command_that_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "build_worker", lambda out: out.write_text("worker"))
    monkeypatch.setattr(run, "build_store", lambda worker, out: out.write_text("store"))
    (into := tmp_path / "node").mkdir()
    run.load_images(f"cp {{tar}} {into}")
    assert {path.read_text() for path in into.iterdir()} == {"worker", "store"}
