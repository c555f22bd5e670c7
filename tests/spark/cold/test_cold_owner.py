"""A log of the cold tier is of one namespace: others would take its rows for theirs."""

from pathlib import Path

import pytest

from duebridge.errors import ConfigError, JobFailed
from duebridge.store.registry import Registry
from duebridge_connectors.spark.cold.commit_log import SWEPT, ColdLog, Commit
from duebridge_connectors.spark.cold.log_owner import OWNER, claim_log, owner_of
from duebridge_connectors.spark.cold.tier import open_tier
from duebridge_connectors.spark.filesystem import read_file
from tests.spark.world import World


@pytest.fixture
def log(world: World) -> ColdLog:
    return ColdLog(f"{world.home}/cold", "cold")


def of_another_namespace(world: World) -> str:
    """A configuration with the same path and the same route."""
    other = world.home / "other.yaml"
    other.write_text(Path(world.config).read_text().replace(world.namespace, "another"))
    return str(other)


def test_open_tier_of_another_namespace_is_refused_and_says_how_to_go_on(
    world: World, log: ColdLog
) -> None:
    open_tier(world.config, "cold")
    other = of_another_namespace(world)
    for only_reads in (False, True):
        with pytest.raises(ConfigError, match=f"namespace another.*got {world.namespace}.*delete"):
            open_tier(other, "cold", only_reads=only_reads)
    Path(f"{log.root}/{OWNER}").unlink()
    open_tier(other, "cold")
    with pytest.raises(ConfigError, match="got another"):
        open_tier(world.config, "cold")


def test_open_tier_of_a_log_that_was_there_before_makes_its_namespace_the_owner(
    world: World, log: ColdLog
) -> None:
    log.commit(Commit(kind=SWEPT, batch="B", at_ms=1))
    open_tier(world.config, "cold", only_reads=True)
    assert owner_of(log) == ""
    open_tier(world.config, "cold")
    assert owner_of(log) == world.namespace
    assert read_file(log.root / OWNER) == b'{"namespace":"%s"}' % world.namespace.encode()


def test_open_tier_of_a_route_that_was_purged_goes_on_with_its_files(world: World) -> None:
    open_tier(world.config, "cold")
    Registry(world.connection, world.namespace).remove_route("cold", 2)
    open_tier(world.config, "cold")


def test_claim_of_a_log_by_two_at_once_lets_one_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ColdLog(str(tmp_path), "cold")
    claim_log(log, "one")
    seen = [""]  # the other looked before
    monkeypatch.setattr(
        "duebridge_connectors.spark.cold.log_owner.owner_of",
        lambda log: seen.pop() if seen else owner_of(log),
    )
    with pytest.raises(ConfigError, match="got one"):
        claim_log(log, "other")
    assert owner_of(log) == "one"


def test_owner_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    log = ColdLog(str(tmp_path), "cold")
    claim_log(log, "one")
    Path(f"{log.root}/{OWNER}").write_text("{")
    with pytest.raises(JobFailed, match=f"{OWNER}: expected the owner of the log"):
        claim_log(log, "one")
