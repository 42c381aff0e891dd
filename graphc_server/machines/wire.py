"""What a server and its workers say to each other over Redis.

Dramatiq's queue carries a message for each attempt at a job, and gives it to another worker when the one that has it dies. Beside
it lie, under `graphc:`, what Dramatiq has no place for:

    asked:ATTEMPT   what the server wants of the attempt. It is written again each second; when it is gone, so is the server, and
                    nobody wants the attempt any more.
    run:ATTEMPT     which worker's run of the attempt counts: the last one.
    said:ATTEMPT    a stream of what the runs say: steps, previews, pictures, their end.
    file:NAME       a picture that a job needs, named by its content.
    worker:NAME     a worker that lives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from graphc_server.errors import RequestError, StoreError

LEASE = 15
"""Seconds after which what was not renewed is gone: a server's wish for an attempt, a worker's sign of life."""

KEPT = 24 * 60 * 60
"""Seconds for which files and what was said are kept, if nobody takes them away."""

QUEUE = "graphc"
ACTOR = "paint"
ALWAYS = 100_000
"""Of a hundred thousand commands, those with which Dramatiq looks for messages of workers that died."""


@dataclass(frozen=True)
class Said:
    """One thing that a run says. `content` are a preview's or picture's bytes."""

    run: str
    kind: str
    about: dict[str, Any]
    content: bytes = b""


class Wire:
    """One end of the connection. What it does is tried for some seconds, and then raises redis.RedisError."""

    def __init__(self, url: str) -> None:
        """Raises RequestError for an address that is none of Redis'."""
        try:
            self.redis = redis.Redis.from_url(url, health_check_interval=LEASE, retry=Retry(ConstantBackoff(1), LEASE))
        except ValueError as problem:
            raise RequestError(f"--broker {url}: {problem}") from None
        make: Any = RedisBroker
        self.broker = make(url=url, middleware=[], heartbeat_timeout=LEASE * 1000, maintenance_chance=ALWAYS)
        self.broker.declare_queue(QUEUE)

    def send(self, attempt: str, work: Any) -> None:
        """Have a worker begin an attempt at an order's JSON."""
        self.broker.enqueue(
            dramatiq.Message(queue_name=QUEUE, actor_name=ACTOR, args=(attempt, work), kwargs={}, options={})
        )

    def ask(self, attempt: str, wish: str, *, new: bool = False) -> bool:
        """Say what is wanted of an attempt, and that somebody is there; False if it was forgotten meanwhile, so that workers may
        have let it go."""
        return bool(self.redis.set(f"graphc:asked:{attempt}", wish, ex=LEASE, xx=not new))

    def asked(self, attempt: str, run: str | None = None) -> str | None:
        """What is wanted of an attempt; None if nobody is there any more, or another run counts."""
        found: Any = self.redis.mget(f"graphc:asked:{attempt}", f"graphc:run:{attempt}")
        wish, counts = found
        other = run is not None and (counts or b"").decode() != run
        return None if wish is None or other else wish.decode()

    def begin(self, attempt: str, run: str) -> None:
        """From now on this run counts."""
        self.redis.set(f"graphc:run:{attempt}", run, ex=KEPT)

    def say(self, attempt: str, said: Said) -> None:
        """Tell the server."""
        fields: Any = {"run": said.run, "kind": said.kind, "about": json.dumps(said.about), "content": said.content}
        name = f"graphc:said:{attempt}"
        with self.redis.pipeline() as together:
            together.xadd(name, fields)
            together.expire(name, KEPT)
            together.execute()

    def listen(self, attempt: str, after: str, milliseconds: int) -> Iterator[tuple[str, Said]]:
        """What was said after a place in the stream ("0" for its beginning), with its own place; it is waited for so long."""
        found: Any = self.redis.xread({f"graphc:said:{attempt}": after}, count=16, block=milliseconds)
        for place, fields in found[0][1] if found else []:
            run, kind = fields[b"run"].decode(), fields[b"kind"].decode()
            yield place.decode(), Said(run, kind, json.loads(fields[b"about"]), fields[b"content"])

    def forget(self, attempt: str) -> None:
        """The attempt is over, for the server."""
        self.redis.delete(f"graphc:asked:{attempt}", f"graphc:run:{attempt}", f"graphc:said:{attempt}")

    def put_file(self, name: str, content: bytes) -> None:
        """Lay a picture there that a job needs."""
        self.redis.set(f"graphc:file:{name}", content, ex=KEPT)

    def file(self, name: str) -> bytes:
        """Such a picture. Raises StoreError if it is gone, or another."""
        content: Any = self.redis.get(f"graphc:file:{name}")
        if content is None or hashlib.sha256(content).hexdigest() != name.partition(".")[0]:
            raise StoreError(f"{name}: a picture of the request is gone")
        return bytes(content)

    def live(self, name: str) -> None:
        """A worker lives."""
        self.redis.set(f"graphc:worker:{name}", b"", ex=LEASE)

    def leave(self, name: str) -> None:
        """A worker takes no more jobs."""
        self.redis.delete(f"graphc:worker:{name}")

    def workers(self) -> list[str]:
        """The workers that live."""
        return sorted(key.decode().removeprefix("graphc:worker:") for key in self.redis.scan_iter("graphc:worker:*"))
