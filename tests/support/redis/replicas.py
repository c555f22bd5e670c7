"""A primary and its replicas, which a test freezes: then nobody confirms what is written."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from duebridge.store.server.embedded import server_program
from tests.support.redis.redis_node import RedisNode, server
from tests.support.servers import wait_until


class Replicas:
    """A primary, and the replicas that follow it."""

    def __init__(self, primary: RedisNode, replicas: Sequence[RedisNode]) -> None:
        self.primary, self.replicas = primary, replicas
        self.url = f"redis://127.0.0.1:{primary.port}/0"

    def await_caught_up(self) -> None:
        """Return once every replica confirms what is written."""
        with redis.Redis(port=self.primary.port) as client:
            wait_until(lambda: self._confirms(client), "the replicas to confirm a write")

    def _confirms(self, client: redis.Redis) -> bool:
        with client.pipeline(transaction=False) as pipe:
            pipe.incr("caught-up")
            pipe.delete("caught-up")
            pipe.execute_command("WAIT", len(self.replicas), 1000)  # type: ignore[no-untyped-call]
            return bool(pipe.execute()[-1] == len(self.replicas))

    @contextmanager
    def frozen(self, count: int | None = None) -> Iterator[None]:
        """Freeze the first `count` replicas, all by default; they go on at the end."""
        some = self.replicas[:count]
        for each in some:
            each.freeze()
        try:
            yield
        finally:
            self.resume()

    def resume(self) -> None:
        """Let every replica go on, frozen or not."""
        for each in self.replicas:
            each.resume()


@contextmanager
def replicated(
    home: Path, *options: str, replicas: int = 2, valkey: bool = False
) -> Iterator[Replicas]:
    """Run a primary and its replicas: the Redis of this machine, or the Valkey that we embed."""
    primary = server(home / "0", *options)
    follow = ("--replicaof", f"127.0.0.1 {primary.port}")
    followers = [server(home / str(number + 1), *options, *follow) for number in range(replicas)]
    with ExitStack() as stack:
        for each in (primary, *followers):
            if valkey:
                each._words[0] = server_program()
            stack.callback(each.kill)
            each.start()
        found = Replicas(primary, followers)
        found.await_caught_up()
        yield found
