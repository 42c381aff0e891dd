"""A server process: uvicorn around the application, logs in JSON, and an end that loses nothing."""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from pathlib import Path
from types import FrameType

import uvicorn

from graphc_server import cut_off
from graphc_server.app import create_app
from graphc_server.service import Service, Setup

HANDED_OVER = 0.0005
"""Seconds that a thread keeps Python when others want it, usually ten times as long. A request goes through several threads, and
each waits so long for the one that paints, whenever that is between two runs of the model."""

PLAIN = frozenset(vars(logging.makeLogRecord({})))
"""What every record of a log has; the rest is what is said besides."""


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        said = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        said |= {name: str(value) for name, value in vars(record).items() if name not in (*PLAIN, "color_message")}
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said)


def log_lines(*names: str) -> None:
    """Write what these loggers say to the standard error, as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in names:
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.INFO)


class Ending(uvicorn.Server):
    """A server that tells the painter of a signal at once: clients whose jobs have not begun need not wait for others'."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal to end."""
        self.service.painter.close()
        super().handle_exit(sig, frame)


def run(setup: Setup, host: str, port: int, listen: Path | None, certificate: Path | None, key: Path | None) -> None:
    """Serve until a signal. Raises ImageError for folders that are not there, OSError for an address that is taken."""
    log_lines("graphc.server", "uvicorn.error")
    sys.setswitchinterval(HANDED_OVER)
    cut_off.guard()
    app = create_app(setup)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        uds=None if listen is None else str(listen),
        ssl_certfile=certificate,
        ssl_keyfile=None if key is None else str(key),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(setup.patience) + 2,
    )
    gc.freeze()  # what was made so far stays, and no collection need look at it again, while all threads wait
    Ending(config, app.state.service).run()
