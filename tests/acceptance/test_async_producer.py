"""The producer for asyncio programs."""

import asyncio
import inspect
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from duebridge import AsyncProducer, Envelope, Producer
from duebridge.errors import ConfigError, EnvelopeError, StoreError, StoreUnavailable
from duebridge.store.routing import shard_number
from duebridge.store.server.connection import REPEAT_FOR_S
from tests.support.network.proxy import Proxy, proxied
from tests.support.servers import redis_server, wait_until

CONFIG = """\
version: 1
store: {{url: "{url}", namespace: {namespace}}}
brokers: {{here: {{type: memory}}}}
routes: {{r: {{target: {{broker: here, topic: t}}, max_body: 1KiB, shards: 2}}}}
"""


@pytest.fixture
def config(tmp_path: Path, embedded: Path) -> Path:
    path, namespace = tmp_path / "duebridge.yaml", f"async-{secrets.token_hex(6)}"
    path.write_text(CONFIG.format(url=f"embedded:{embedded}", namespace=namespace))
    return path


def test_every_public_method_of_producer_is_here_with_its_parameters() -> None:
    for name, method in inspect.getmembers(Producer, callable):
        if name.startswith("_") and name not in ("__enter__", "__exit__"):
            continue
        here = getattr(
            AsyncProducer, name.replace("__enter", "__aenter").replace("__exit", "__aexit")
        )
        ours = inspect.signature(here).parameters
        assert set(inspect.signature(method).parameters) <= set(ours), name
        if name == "from_config":
            continue
        assert inspect.iscoroutinefunction(here) or inspect.isasyncgenfunction(here), name


def test_schedule_get_reschedule_and_cancel_answer_as_the_producer_does(config: Path) -> None:
    misspelt: Any = {"dealy": "5s"}

    async def live() -> None:
        async with AsyncProducer.from_config(config) as producer:
            receipt = await producer.schedule("r", b"x", delay="1h", id="a")
            assert (receipt.id, receipt.status) == ("a", "accepted")
            assert (await producer.schedule("r", b"x", delay="1h", id="a")).status == "duplicate"
            assert await producer.reschedule("r", "a", delay="2h") == "rescheduled"
            known = await producer.get("r", "a")
            assert known is not None
            assert known.due_at_ms > receipt.due_at_ms
            assert await producer.cancel("r", "a") == "cancelled"
            assert await producer.cancel("r", "a") == "unknown"
            assert await producer.get("r", "a") is None
            with pytest.raises(EnvelopeError, match="did you mean delay"):
                await producer.schedule("r", "text", **misspelt)
            with pytest.raises(ConfigError, match="got 'q'"):
                await producer.schedule_many("q", [])

    asyncio.run(live())


async def some(count: int) -> AsyncIterator[Envelope]:
    for number in range(count):
        yield Envelope.new(b"x" * (2_000 if number == 700 else 1), delay="1h", id=f"id{number}")


def test_schedule_many_takes_both_kinds_of_iterable_and_loses_none(config: Path) -> None:
    async def live() -> None:
        async with AsyncProducer.from_config(config) as producer:
            receipts = await producer.schedule_many("r", some(1_200))
            plain = (Envelope.new(b"x", delay="1h", id=f"id{n}") for n in range(1_200))
            again = [each async for each in producer.schedule_stream("r", plain)]
        assert [each.id for each in receipts] == [f"id{number}" for number in range(1_200)]
        assert [each.id for each in receipts if each.status != "accepted"] == ["id700"]
        assert "at most 1024 bytes" in receipts[700].error
        assert [each.id for each in again if each.status != "duplicate"] == ["id700"]

    asyncio.run(live())


def test_many_tasks_share_one_producer_and_its_bounded_threads(config: Path) -> None:
    async def live() -> None:
        async with AsyncProducer.from_config(config, threads=3) as producer:
            calls = (producer.schedule("r", b"x", delay="1h", id=f"id{n}") for n in range(200))
            receipts = await asyncio.gather(*calls)
            names = [each.name for each in threading.enumerate()]
        assert {each.status for each in receipts} == {"accepted"}
        assert sum(name.startswith("duebridge-producer") for name in names) <= 3

    asyncio.run(live())


def test_cancel_task_before_its_call_was_sent_stores_nothing(config: Path) -> None:
    async def live() -> None:
        begun, may_go = threading.Event(), threading.Event()

        def slowly() -> Iterator[Envelope]:
            begun.set()
            assert may_go.wait(30)
            yield Envelope.new(b"x", delay="1h", id="a")

        async with AsyncProducer.from_config(config) as producer:
            task = asyncio.create_task(
                producer._call(lambda opened: opened.schedule_many("r", slowly()))
            )
            await asyncio.to_thread(begun.wait, 30)
            await cancelled(task)
            may_go.set()
        with Producer.from_config(config) as later:
            assert later.get("r", "a") is None

    asyncio.run(live())


def test_cancel_task_that_waits_for_the_opening_runs_no_call(config: Path) -> None:
    opening, may_open, called = threading.Event(), threading.Event(), threading.Event()

    def open_producer() -> Producer:
        opening.set()
        assert may_open.wait(30)
        return Producer.from_config(config)

    async def live() -> None:
        producer = AsyncProducer(open_producer)
        first = asyncio.create_task(producer.get("r", "a"))
        await asyncio.to_thread(opening.wait, 30)
        task = asyncio.create_task(producer._call(lambda _: called.set()))
        await asyncio.sleep(0)  # lets the task hand its call to a thread
        await cancelled(task)
        may_open.set()
        assert await first is None
        await producer.close()
        assert not called.is_set()

    asyncio.run(live())


def test_close_amid_schedule_many_raises_with_the_receipts_of_what_is_stored(config: Path) -> None:
    async def live() -> None:
        producer = AsyncProducer.from_config(config)

        async def closing() -> AsyncIterator[Envelope]:
            async for envelope in some(1000):  # the first batch
                yield envelope
            await producer.close()
            yield Envelope.new(b"x", delay="1h", id="late")

        with pytest.raises(StoreError, match=r"closed; .*AsyncProducer\.from_config") as failed:
            await producer.schedule_many("r", closing())
        assert failed.value.ids[-1] == "late"
        stored = [each.id for each in failed.value.receipts if each.status == "accepted"]
        with Producer.from_config(config) as later:
            assert stored
            assert all(later.get("r", each) for each in stored)
            assert later.get("r", "late") is None
        with pytest.raises(StoreError, match="closed"):
            await producer.get("r", "late")

    asyncio.run(live())


@pytest.fixture
def unsteady(tmp_path: Path) -> Iterator[tuple[Path, Proxy]]:
    """A configuration whose store goes away as a test asks, and the proxy that sees to it."""
    with redis_server(tmp_path) as port, proxied(port) as proxy:
        text = CONFIG.format(url=f"redis://127.0.0.1:{proxy.port}/0", namespace="n")
        path = tmp_path / "duebridge.yaml"
        path.write_text(text.replace("namespace: n", "allow_unfit: [persistence]"))
        yield path, proxy


async def cancelled(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelled_task_has_its_call_sent_no_more(unsteady: tuple[Path, Proxy]) -> None:
    path, proxy = unsteady

    async def live() -> None:
        async with AsyncProducer.from_config(path) as producer:
            await producer.schedule("r", b"x", delay="1h", id="first")
            proxy.refuse(10**6)
            task = asyncio.create_task(producer.schedule("r", b"x", delay="1h", id="left"))
            await asyncio.to_thread(wait_until, lambda: proxy.refused, "a try")
            await cancelled(task)
            running = producer._threads._running  # a try that is under way would find it back
            await asyncio.to_thread(wait_until, lambda: not running, "its end", REPEAT_FOR_S / 2)
            proxy.refuse(0)
        with Producer.from_config(path) as later:
            assert later.get("r", "left") is None

    asyncio.run(live())


def test_cancelled_task_begins_no_further_shard(unsteady: tuple[Path, Proxy]) -> None:
    path, proxy = unsteady
    batch = [
        Envelope.new(secrets.token_bytes(900), delay="1h", id=f"id{number}") for number in range(20)
    ]

    async def live() -> None:
        async with AsyncProducer.from_config(path) as producer:
            await producer.schedule_many("r", [])
            proxy.hold()
            task = asyncio.create_task(
                producer._call(lambda opened: opened.schedule_many("r", batch))
            )
            assert await asyncio.to_thread(proxy.has_passed, 5_000)
            await cancelled(task)
            proxy.release()
        with Producer.from_config(path) as later:
            stored = {shard_number(each.id, 2) for each in batch if later.get("r", each.id)}
        assert stored == {shard_number("id0", 2)}

    asyncio.run(live())


FORKING = """\
import asyncio, os, signal, sys, threading
from duebridge import AsyncProducer, Producer

blocking, awaitable = (each.from_config(sys.argv[1]) for each in (Producer, AsyncProducer))

def schedule(name):
    blocking.schedule("r", b"x", delay="1h", id=f"{name}-blocking")
    asyncio.run(awaitable.schedule("r", b"x", delay="1h", id=f"{name}-awaitable"))

schedule("before")
life = blocking._routes["r"].store.shards[0]._life
held, may_go = threading.Event(), threading.Event()

def hold():  # as threads that are there at the moment of the fork
    pool = blocking._connection.client.connection_pool
    with awaitable._opening, pool._lock, pool._event_dispatcher._lock, life._looking:
        held.set()
        may_go.wait()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    schedule("child")
    life._look_again(life._text)
    asyncio.run(awaitable.close())
    blocking.close()
    os._exit(0)
may_go.set()
ended = os.waitpid(child, 0)[1]
schedule("after")
sys.exit(os.waitstatus_to_exitcode(ended))
"""


def test_producers_made_and_used_before_a_fork_work_in_both_processes(config: Path) -> None:
    program = [sys.executable, "-c", FORKING, str(config)]
    done = subprocess.run(program, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    with Producer.from_config(config) as producer:
        for name in ("before", "child", "after"):
            for kind in ("blocking", "awaitable"):
                assert producer.get("r", f"{name}-{kind}"), (name, kind)


def test_opening_of_a_store_that_is_away_raises_where_it_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Producer.__init__, "__defaults__", (None, None, 0.0))
    path = tmp_path / "duebridge.yaml"
    path.write_text(CONFIG.format(url="redis://127.0.0.1:1/0", namespace="n"))

    async def live() -> None:
        with pytest.raises(StoreUnavailable):
            async with AsyncProducer.from_config(path):
                pass

    asyncio.run(live())


def test_calls_that_wait_while_the_opening_fails_fail_with_it(config: Path) -> None:
    opened, may_fail = 0, threading.Event()

    def open_producer() -> Producer:
        nonlocal opened
        opened += 1
        if opened > 1:
            return Producer.from_config(config)
        assert may_fail.wait(30)
        raise StoreUnavailable("away")

    async def live() -> None:
        async with asyncio.timeout(60):
            producer = AsyncProducer(open_producer, threads=2)
            calls = [asyncio.ensure_future(producer.get("r", "a")) for _ in range(5)]
            await asyncio.to_thread(wait_until, lambda: opened, "the first opening")
            may_fail.set()
            failures = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in failures] == 5 * [StoreUnavailable]
            assert opened == 1
            assert await producer.get("r", "a") is None
            await producer.close()

    asyncio.run(live())
