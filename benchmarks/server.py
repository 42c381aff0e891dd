"""What `graphc serve` costs: until it answers, while it is idle, for each picture, and how soon it answers while it paints.

    python benchmarks/server.py

The small model that comes with the package paints. Pictures of the server are set against the same pipeline's in another process
that writes them to files; both run by turns. Run it on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ASKED: dict[str, Any] = {"prompt": "a red circle left of a blue square", "seed": 1}
GETS = (
    *("/sdapi/v1/progress", "/sdapi/v1/options", "/sdapi/v1/sd-models", "/sdapi/v1/samplers", "/queue", "/object_info"),
    *("/graphc/v1/jobs", "/graphc/v1/pictures", "/v1/models", "/health", "/"),
)
DIRECT = """
import sys, time, graphc_images
pipeline = graphc_images.load(threads=int(sys.argv[1]))
for line in sys.stdin:
    begin = time.perf_counter()
    pipeline(**eval(line))[0].save(sys.argv[2])
    print(time.perf_counter() - begin, flush=True)
"""


@contextmanager
def served(folder: Path, threads: int) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes], float]]:
    """A server, what asks it, and the seconds until it answered."""
    socket = folder / "socket"
    program = [sys.executable, "-c", "from graphc.cli import main; main()"]
    command = [*program, "serve", "--listen", str(socket), "--data", str(folder / "data")]
    begin = time.perf_counter()
    process = subprocess.Popen([*command, "--threads", str(threads)], stderr=subprocess.DEVNULL)
    transport = httpx.HTTPTransport(uds=str(socket))
    try:
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=600) as client:
            while True:
                try:
                    client.get("/sdapi/v1/sd-models").raise_for_status()
                    break
                except httpx.TransportError:
                    time.sleep(0.005)
            yield client, process, time.perf_counter() - begin
    finally:
        process.terminate()
        process.wait()


def memory_of(process: subprocess.Popen[bytes]) -> int:
    """The bytes of a process that are in memory (Linux)."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def pictures(client: httpx.Client, folder: Path, threads: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of pictures over HTTP, and of the pipeline, by turns. The first of each is not counted."""
    command = [sys.executable, "-c", DIRECT, str(threads), str(folder / "direct.png")]
    direct = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert direct.stdin is not None
    assert direct.stdout is not None
    over_http, alone = [], []
    for number in range(rounds + 1):
        asked = ASKED | {"seed": number}
        begin = time.perf_counter()
        client.post("/sdapi/v1/txt2img", json=asked | SAME).raise_for_status()
        over_http.append(time.perf_counter() - begin)
        print(repr(asked | {"sampler": "Euler a", "steps": SAME["steps"]}), file=direct.stdin, flush=True)
        alone.append(float(direct.stdout.readline()))
    direct.stdin.close()
    direct.wait()
    return over_http[1:], alone[1:]


SAME: dict[str, Any] = {"sampler_name": "Euler a", "steps": 20, "width": 128, "height": 128, "cfg_scale": 4.0}
"""The small model's usual settings, as A1111 says them."""


def answers(client: httpx.Client, seconds: float) -> list[float]:
    """Seconds that GETs take while pictures are painted."""
    found = []
    with ThreadPoolExecutor(1) as pool:
        painting = pool.submit(client.post, "/sdapi/v1/txt2img", json=ASKED | SAME | {"steps": 150, "n_iter": 60})
        time.sleep(1)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not painting.done():
            for path in GETS:
                begin = time.perf_counter()
                client.get(path).raise_for_status()
                found.append(time.perf_counter() - begin)
                time.sleep(0.02)
        client.post("/sdapi/v1/interrupt")
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    starts, idle = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(options.starts):
            with served(folder, options.threads) as (_client, process, seconds):
                time.sleep(2)
                starts.append(seconds)
                idle = max(idle, memory_of(process))
        with served(folder, options.threads) as (client, _process, _seconds):
            over_http, alone = pictures(client, folder, options.threads, options.rounds)
            gets = sorted(answers(client, options.seconds))
    found = {
        "start to the first answer": statistics.median(starts),
        "a picture over HTTP": statistics.median(over_http),
        "the same by the pipeline": statistics.median(alone),
        "the server's share": statistics.median(a - b for a, b in zip(over_http, alone, strict=True)),
        "a GET while it paints, median": statistics.median(gets),
        "99th percentile": gets[int(len(gets) * 0.99)],
    }
    print("| what | |\n| --- | --- |")
    for what, value in found.items():
        print(f"| {what} | {1000 * value:.1f} ms |")
    print(f"| memory of the idle server | {idle / 1e6:.0f} MB |")
    if options.json:
        options.json.write_text(json.dumps({**found, "idle": idle, "gets": len(gets)}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
