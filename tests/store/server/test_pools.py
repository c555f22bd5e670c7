"""Pools of connections, with a thread in one while its process ends or forks."""

import subprocess
import sys

import pytest

# A thread that the end of the interpreter stops in the middle of a pool holds its lock for ever.
HOLDER = """
import sys, threading, time
import duebridge
from duebridge.store.server.connection import open_connection

def hold(pools, held):
    for each in pools:
        each._lock.acquire()
    held.set()
    time.sleep(3600)

def opened(url):
    connection = open_connection(url)
    pool = connection.client.connection_pool
    sentinels = pool._finder._sentinels if url.startswith("redis+sentinel") else ()
    pools = [pool, *(each.connection_pool for each in sentinels)]
    held = threading.Event()
    threading.Thread(target=hold, args=(pools, held), daemon=True).start()
    held.wait()
    return connection
"""
KEEPING = """
duebridge.kept = opened(sys.argv[1])  # by a module, so that it is deleted at the very end
"""
URLS_OF_POOLS = pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1", "redis+sentinel://127.0.0.1:1/duebridge"]
)


@URLS_OF_POOLS
def test_process_that_ends_while_a_thread_is_in_a_pool_ends_at_once(url: str) -> None:
    command = [sys.executable, "-c", HOLDER + KEEPING, url]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert done.stderr == ""


FORKING = """
import os, signal
from duebridge.errors import StoreUnavailable

connection = opened(sys.argv[1])
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        connection.load_scripts()
    except StoreUnavailable:
        os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
"""


@URLS_OF_POOLS
def test_child_of_a_fork_while_a_thread_is_in_a_pool_makes_calls(url: str) -> None:
    command = [sys.executable, "-c", HOLDER + FORKING, url]
    assert subprocess.run(command, timeout=60).returncode == 0
