"""`graphc serve-device`: a device of this machine, for programs in other processes or on other machines."""

from __future__ import annotations

from typing import Annotated

import typer

from graphc.commands import options
from graphc.commands.output import note, printable, say

EXPOSED = (
    "warning: other machines can reach this server. ggml's RPC has no passwords and no encryption, and whoever can connect can "
    "run code here: use it on networks that you trust, and no others"
)


def serve_device(
    device: Annotated[str, typer.Option(help="The device to serve: one that `graphc devices` lists.")] = "cpu",
    host: Annotated[
        str, typer.Option(help="The IPv4 address to listen on; by default this machine's own.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 50052,
    threads: options.Threads = None,
) -> None:
    """Let models that run elsewhere use a device of this machine: `--device rpc://HOST:PORT` there.

    One program is served at a time. It runs until it is interrupted.
    """
    from graphc.backends.guard import catch_ends
    from graphc.backends.load import load_backends
    from graphc.backends.precision import settle_precision
    from graphc.backends.rpc import check_free, is_loopback, serve
    from graphc.targets.ggml.run.device.devices import default_threads, find_device

    settle_precision()
    load_backends()
    catch_ends()
    handle = find_device(device)
    if not is_loopback(host):
        note(EXPOSED)
    check_free(host, port)
    say(f"{printable(device)} is served as rpc://{host}:{port}; Ctrl+C ends it")
    serve(handle, host, port, threads or default_threads())
