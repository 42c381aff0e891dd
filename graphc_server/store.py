"""What outlives the process: jobs, their pictures, and options, in one SQLite database.

Each change is one transaction, so a server that was killed finds its queue as it was; a job that was being painted then waits
again, before all others.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Literal

from graphc_server.errors import StoreError

State = Literal["waiting", "painting", "done", "failed", "cancelled"]
ENDED: tuple[State, ...] = ("done", "failed", "cancelled")

DAY = 24 * 60 * 60
LARGEST, LONGEST = 2**63 - 1, 10_000
"""What SQLite can count to, and how much of a queue is looked at."""

TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    protocol TEXT NOT NULL,
    state TEXT NOT NULL,
    work TEXT NOT NULL,
    asked TEXT NOT NULL,
    turn INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL,
    started REAL,
    ended REAL,
    error TEXT NOT NULL DEFAULT '',
    remarks TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, number);
CREATE INDEX IF NOT EXISTS jobs_by_client ON jobs (client, turn);
CREATE TABLE IF NOT EXISTS pictures (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    file TEXT NOT NULL,
    seed INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    PRIMARY KEY (job, place)
);
CREATE TABLE IF NOT EXISTS plots (id TEXT PRIMARY KEY, said TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS options (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

LATER: Mapping[str, str] = {"result": "TEXT NOT NULL DEFAULT '{}'", "status": "INTEGER NOT NULL DEFAULT 0"}
"""Columns of jobs that were not there from the beginning: databases of earlier versions get them."""

QUEUE = """
SELECT * FROM jobs WHERE state IN ('waiting', 'painting')
ORDER BY turn = 0, (SELECT MAX(turn) FROM jobs AS earlier WHERE earlier.client = jobs.client), number LIMIT ?
"""
"""Those that were begun go first, also where the database could not be told of their end; else the client whose last turn is the
longest ago, and of its jobs the oldest."""

LOOKED_AT = 64
"""Jobs of the queue that are looked at for some that are alike."""

Beside = Callable[["Job"], Callable[["Job"], bool]]
"""For a job, what says of others, one after the other, whether they are painted with it."""


@dataclass(frozen=True)
class Job:
    """A row of the queue. `work` is an order's JSON, `asked` what the client sent and wants echoed, `result` what a protocol's
    maker says of what it made so far."""

    number: int
    id: str
    client: str
    protocol: str
    state: State
    work: Mapping[str, Any]
    asked: Mapping[str, Any]
    turn: int
    created: float
    started: float | None
    ended: float | None
    error: str
    remarks: list[str]
    result: Mapping[str, Any]
    status: int
    """Of the error, as HTTP has it."""


TURNS = """
SELECT client, MAX(turn) AS last FROM jobs WHERE client IN (SELECT client FROM jobs WHERE state = 'waiting') GROUP BY client
"""
"""The last turn of each client that waits."""

GALLERY = """
SELECT pictures.rowid AS number, job, place, file, seed, parameters, started FROM pictures JOIN jobs ON jobs.id = job
WHERE JSON_EXTRACT(work, '$.kept') AND seed >= 0 AND pictures.rowid < ?"""
SEARCHED = " AND parameters LIKE ? ESCAPE '!'"

HINT = -1
"""In the place of a seed: the picture is what a ControlNet looked at."""


@dataclass(frozen=True)
class Painted:
    """A finished picture: its file's name in the folder of pictures, its seed, and A1111's text."""

    file: str
    seed: int
    parameters: str


@dataclass(frozen=True)
class Kept(Painted):
    """A finished picture that stays: of which job, at which place; `number` counts up, `started` is when the job began."""

    number: int
    job: str
    place: int
    started: float | None


class Store:
    """The database, for all threads. Raises StoreError where it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.RLock()
        self._path = path
        with self._errors():
            self._database = sqlite3.connect(path, timeout=5, check_same_thread=False, isolation_level=None)
            self._database.row_factory = sqlite3.Row
            for name, value in (("journal_mode", "WAL"), ("synchronous", "NORMAL"), ("foreign_keys", "ON")):
                self._database.execute(f"PRAGMA {name}={value}")
            self._database.executescript(TABLES)
            there = {row["name"] for row in self._database.execute("PRAGMA table_info(jobs)")}
            for name in LATER.keys() - there:
                self._database.execute(f"ALTER TABLE jobs ADD COLUMN {name} {LATER[name]}")
            self._database.execute("UPDATE jobs SET state = 'waiting' WHERE state = 'painting'")

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    def add(self, id: str, client: str, protocol: str, work: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        """A new job at the end of the queue."""
        values = id, client, protocol, json.dumps(work), json.dumps(asked), time.time()
        self._do(
            "INSERT INTO jobs (id, client, protocol, state, work, asked, created) VALUES (?, ?, ?, 'waiting', ?, ?, ?)",
            *values,
        )

    def take(self, beside: Beside = lambda first: lambda other: False, at_hand: Collection[str] = ()) -> list[Job]:
        """The next job and those beside it, which are painted from now on; none if there are none. `at_hand` are jobs that are
        being painted already."""
        with self._errors(), self._database as transaction:
            transaction.execute("BEGIN IMMEDIATE")
            rows = transaction.execute(QUEUE, (1 + len(at_hand),)).fetchall()
            row = next((each for each in rows if each["id"] not in at_hand), None)
            if row is None:
                return []
            fits = beside(_job(row))
            first = _taken(transaction, _job(row))
            others = [_job(each) for each in transaction.execute(QUEUE, (LOOKED_AT,)) if each["id"] != first.id]
            return [first, *(_taken(transaction, job) for job in others if fits(job))]

    def give_back(self, id: str) -> None:
        """The job waits again, before all others."""
        self._do("UPDATE jobs SET state = 'waiting' WHERE id = ?", id)

    def end(self, id: str, state: State, error: str = "", remarks: list[str] | None = None, status: int = 0) -> bool:
        """The job is over; False if it was before."""
        values = state, error, json.dumps(remarks or []), status, time.time(), id, *ENDED
        return bool(
            self._do(
                "UPDATE jobs SET state = ?, error = ?, remarks = ?, status = ?, ended = ? "
                "WHERE id = ? AND state NOT IN (?, ?, ?)",
                *values,
            )
        )

    def set_result(self, id: str, result: Mapping[str, Any]) -> None:
        """What a protocol's maker says of what it made so far."""
        self._do("UPDATE jobs SET result = ? WHERE id = ?", json.dumps(result), id)

    def cancel_waiting(self, id: str) -> bool:
        """Take a job out of the queue; False if it does not wait."""
        return bool(
            self._do(
                "UPDATE jobs SET state = 'cancelled', ended = ? WHERE id = ? AND state = 'waiting'", time.time(), id
            )
        )

    def add_picture(self, job: str, place: int, picture: Painted) -> None:
        """A finished picture of a job."""
        values = job, place, picture.file, picture.seed, picture.parameters
        self._do("INSERT OR REPLACE INTO pictures VALUES (?, ?, ?, ?, ?)", *values)

    def pictures(self, job: str) -> list[Painted]:
        """The pictures of a job, in order."""
        rows = self._rows("SELECT file, seed, parameters FROM pictures WHERE job = ? ORDER BY place", job)
        return [Painted(**dict(row)) for row in rows]

    def job(self, id: str) -> Job | None:
        """The job of this name."""
        rows = self._rows("SELECT * FROM jobs WHERE id = ?", id)
        return _job(rows[0]) if rows else None

    def jobs(self, *states: State, limit: int = 1000) -> list[Job]:
        """The jobs in these states, the oldest first."""
        marks = ", ".join("?" * len(states))
        rows = self._rows(f"SELECT * FROM jobs WHERE state IN ({marks}) ORDER BY number LIMIT ?", *states, limit)
        return [_job(row) for row in rows]

    def of_protocol(self, protocol: str, *states: State, limit: int = 10000) -> list[Job]:
        """The last jobs of a protocol in these states that are not forgotten, the oldest first."""
        marks = ", ".join("?" * len(states))
        rows = self._rows(
            f"SELECT * FROM jobs WHERE protocol = ? AND work != '{{}}' AND state IN ({marks}) ORDER BY number DESC LIMIT ?",
            *(protocol, *states, limit),
        )
        return [_job(row) for row in reversed(rows)]

    def waiting(self) -> list[str]:
        """The names of the jobs that wait, the oldest first."""
        return [row["id"] for row in self._rows("SELECT id FROM jobs WHERE state = 'waiting' ORDER BY number")]

    def upcoming(self) -> list[Job]:
        """The jobs that wait, in the order of their turns if no other comes: what `QUEUE` begins with, again and again."""
        with self._errors():
            jobs = self.jobs("waiting", limit=LONGEST)
            last = {row["client"]: row["last"] for row in self._rows(TURNS)}
        found = [job for job in jobs if job.turn]
        waiting = [job for job in jobs if not job.turn]
        queues: dict[str, list[Job]] = {}
        for job in reversed(waiting):
            queues.setdefault(job.client, []).append(job)
        turns = [(last[client], queue[-1].number, client) for client, queue in queues.items()]
        heapify(turns)
        latest = max(last.values(), default=0)
        while turns:
            _, _, client = heappop(turns)
            found.append(queues[client].pop())
            latest += 1
            if queues[client]:
                heappush(turns, (latest, queues[client][-1].number, client))
        return found

    def put_at(self, id: str, place: int) -> bool:
        """Have a job that waits be the client's `place`th of those that wait, from 0; False if it does not wait. They exchange
        their numbers, so that no other client's turn changes."""
        with self._errors(), self._database as transaction:
            transaction.execute("BEGIN IMMEDIATE")
            rows = transaction.execute(
                "SELECT id, number FROM jobs WHERE state = 'waiting' AND turn = 0 AND client = "
                "(SELECT client FROM jobs WHERE id = ?) ORDER BY number", (id,),
            ).fetchall()  # fmt: skip
            ids = [row["id"] for row in rows]
            if id not in ids:
                return False
            ids.remove(id)
            ids.insert(place, id)
            numbered = [(row["number"], each) for row, each in zip(rows, ids, strict=True)]
            transaction.executemany("UPDATE jobs SET number = -? WHERE id = ?", numbered)
            transaction.executemany("UPDATE jobs SET number = ? WHERE id = ?", numbered)
            return True

    def gallery(self, words: Sequence[str] = (), before: int | None = None, limit: int = 50) -> list[Kept]:
        """Pictures that stay, the newest first, in whose texts all words are; those below a number."""
        patterns = [f"%{re.sub('[!%_]', lambda found: '!' + found[0], word)}%" for word in words]
        below = LARGEST if before is None else before
        rows = self._rows(f"{GALLERY}{SEARCHED * len(words)} ORDER BY number DESC LIMIT ?", below, *patterns, limit)
        return [Kept(**dict(row)) for row in rows]

    def kept(self, job: str, place: int) -> Kept | None:
        """A picture that stays."""
        rows = self._rows(f"{GALLERY} AND job = ? AND place = ?", LARGEST, job, place)
        return Kept(**dict(rows[0])) if rows else None

    def remove_picture(self, job: str, place: int) -> None:
        """Forget a picture."""
        self._do("DELETE FROM pictures WHERE job = ? AND place = ?", job, place)

    def add_plot(self, id: str, said: Mapping[str, Any]) -> None:
        """What a plot is of: its axes and its jobs."""
        self._do("INSERT INTO plots VALUES (?, ?, ?)", id, json.dumps(said), time.time())

    def plot(self, id: str) -> dict[str, Any] | None:
        """What a plot is of."""
        rows = self._rows("SELECT said FROM plots WHERE id = ?", id)
        return json.loads(rows[0]["said"]) if rows else None

    def needed(self, file: str) -> bool:
        """True if a job that is not over needs a file, whose name is its content's hash."""
        looked_for = "SELECT 1 FROM jobs WHERE state IN ('waiting', 'painting') AND INSTR(work, ?) LIMIT 1"
        return bool(self._rows(looked_for, file))

    def left_over(self) -> list[Job]:
        """Jobs that ended a day ago, and whose pictures nobody wanted to keep or to have."""
        old = "SELECT * FROM jobs WHERE ended < ? AND work != '{}' AND NOT JSON_EXTRACT(work, '$.kept')"
        return [_job(row) for row in self._rows(old, time.time() - DAY)]

    def drop(self, id: str) -> None:
        """Forget that there was a job."""
        self._do("DELETE FROM jobs WHERE id = ?", id)

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        return {
            row["state"]: row["many"] for row in self._rows("SELECT state, COUNT(*) AS many FROM jobs GROUP BY state")
        }

    def forget(self, id: str) -> None:
        """Forget what a job was asked for, and its pictures; that it was there is known for a day."""
        with self._errors(), self._database as transaction:
            transaction.execute("BEGIN IMMEDIATE")
            transaction.execute("DELETE FROM pictures WHERE job = ?", (id,))
            transaction.execute("UPDATE jobs SET work = '{}', asked = '{}', result = '{}' WHERE id = ?", (id,))
            transaction.execute("DELETE FROM jobs WHERE work = '{}' AND ended < ?", (time.time() - DAY,))

    def options(self) -> dict[str, Any]:
        """All options that were set."""
        return {row["name"]: json.loads(row["value"]) for row in self._rows("SELECT name, value FROM options")}

    def set_options(self, values: Mapping[str, Any]) -> None:
        """Set some, all or none."""
        with self._errors(), self._database as transaction:
            transaction.execute("BEGIN IMMEDIATE")
            rows = [(name, json.dumps(value)) for name, value in values.items()]
            transaction.executemany("INSERT OR REPLACE INTO options VALUES (?, ?)", rows)

    def _do(self, statement: str, *values: Any) -> int:
        with self._errors():
            return self._database.execute(statement, values).rowcount

    def _rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        with self._errors():
            return self._database.execute(statement, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as problem:
                raise StoreError(f"{self._path}: {problem}") from None


def _taken(transaction: sqlite3.Connection, job: Job) -> Job:
    transaction.execute("DELETE FROM pictures WHERE job = ?", (job.id,))
    transaction.execute(
        "UPDATE jobs SET state = 'painting', started = ?, turn = 1 + (SELECT MAX(turn) FROM jobs) WHERE id = ?",
        (time.time(), job.id),
    )
    return _job(transaction.execute("SELECT * FROM jobs WHERE id = ?", (job.id,)).fetchone())


def _job(row: sqlite3.Row) -> Job:
    values = dict(row)
    read = {name: json.loads(values.pop(name)) for name in ("work", "asked", "remarks", "result")}
    return Job(**values, **read)
