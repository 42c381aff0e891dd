"""`graphc serve`: the command line. What it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphc_images.commands.fast import fast_option

if TYPE_CHECKING:
    from graphc_server.service import Setup

serve = typer.Typer(
    help="Offer pictures over HTTP, as A1111, ComfyUI, OpenAI and stable-diffusion.cpp do: graphc serve --models DIR"
)

worker = typer.Typer(help="Paint for a server on another machine: graphc worker --broker redis://host --models DIR")

Fast = Annotated[bool, fast_option()]


@serve.callback(invoke_without_command=True)
def start(
    models: Annotated[
        list[Path] | None,
        typer.Option(
            "--models", metavar="DIR", help="Models as A1111, ComfyUI or Easy Diffusion lay them out; else a small one."
        ),
    ] = None,
    data: Annotated[Path, typer.Option(metavar="DIR", help="Where the queue, options and pictures are.")] = Path(
        "graphc-server"
    ),
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for a free one, which is said.")] = 7860,
    listen: Annotated[
        Path | None, typer.Option("--listen", metavar="SOCKET", help="A Unix socket, in place of an address.")
    ] = None,
    api_auth: Annotated[
        list[str] | None, typer.Option("--api-auth", metavar="USER:PASSWORD", help="Ask for it; may be repeated.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name that the server answers to; * for any.")
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            "--cors-allow-origins", "--cors", metavar="ORIGIN", help="A page that may send requests; * for any."
        ),
    ] = None,
    fetch: Annotated[bool, typer.Option(help="Fetch pictures from addresses that requests name.")] = False,
    tls_cert: Annotated[Path | None, typer.Option("--tls-certfile", metavar="FILE", help="For HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-keyfile", metavar="FILE", help="For HTTPS.")] = None,
    styles: Annotated[Path | None, typer.Option("--styles-file", metavar="FILE", help="A styles.csv.")] = None,
    device: Annotated[str, typer.Option(help="See graphc devices.")] = "cpu",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="For all models together, such as 6GiB; no limit if not given.")
    ] = None,
    fast: Fast = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU; all processors if not given.")] = None,
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 128 << 20,
    max_pixels: Annotated[int, typer.Option(min=64, help="Of a picture.")] = 1 << 24,
    max_steps: Annotated[int, typer.Option(min=1, help="Of a sampler.")] = 500,
    max_pictures: Annotated[int, typer.Option(min=1, help="Of a request.")] = 64,
    max_waiting: Annotated[int, typer.Option(min=1, help="Requests in the queue.")] = 256,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds for the picture at hand when the server stops.")
    ] = 30.0,
    api_server_stop: Annotated[bool, typer.Option(help="Let clients stop the server.")] = False,
    broker: Annotated[
        str | None, typer.Option(metavar="URL", help="Redis, such as redis://host: workers paint (graphc worker).")
    ] = None,
) -> None:
    """Offer pictures over HTTP."""
    try:
        from graphc_images.folders import SHAPES
        from graphc_server.fetching import Fetching
        from graphc_server.limits import Limits
        from graphc_server.running import run
        from graphc_server.service import Setup
    except ModuleNotFoundError as problem:
        raise typer.BadParameter(f"{problem.name} is not installed: pip install 'graphc[server]'") from None
    setup = Setup(
        models=tuple(models or [SHAPES.parent]),
        data=data,
        users=_users(api_auth or []),
        hosts=(*_split(allow_host), host),
        origins=tuple(_split(cors)),
        fetching=Fetching(allowed=fetch),
        limits=Limits(max_body, max_pixels, max_steps, max_pictures, max_waiting),
        styles=styles,
        device=device,
        memory=memory,
        threads=threads,
        stoppable=api_server_stop,
        patience=patience,
        broker=broker,
    )
    if broker is not None:
        _check_broker()
    _check_tls(tls_cert, tls_key)
    _warn(setup, host, listen)
    run(setup, host, port, listen, tls_cert, tls_key)


@worker.callback(invoke_without_command=True)
def work(
    broker: Annotated[str, typer.Option(metavar="URL", help="Redis, such as redis://host, as the server has it.")],
    models: Annotated[list[Path], typer.Option("--models", metavar="DIR", help="The models that the server has.")],
    device: Annotated[str, typer.Option(help="See graphc devices.")] = "cpu",
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="For all models together, such as 6GiB.")] = None,
    fast: Fast = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU; all processors if not given.")] = None,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds for the picture at hand when the worker stops.")
    ] = 30.0,
) -> None:
    """Paint for servers with the same broker."""
    _check_broker()
    from redis import RedisError

    from graphc_server.machines.worker import Work, run
    from graphc_server.running import log_lines

    log_lines("graphc.server")
    try:
        run(Work(broker, tuple(models), device, memory, threads, patience))
    except RedisError as problem:
        typer.echo(f"error: --broker {broker}: {problem}", err=True)
        raise typer.Exit(1) from None


def _check_broker() -> None:
    try:
        import dramatiq  # noqa: F401
        import redis  # noqa: F401
    except ModuleNotFoundError as problem:
        raise typer.BadParameter(f"--broker: {problem.name} is not installed: pip install 'graphc[broker]'") from None


def _check_tls(certificate: Path | None, key: Path | None) -> None:
    """Refuse files that are none, or do not belong together."""
    import ssl

    if certificate is None:
        if key is not None:
            raise typer.BadParameter("--tls-keyfile: it wants --tls-certfile too")
        return
    for option, file in (("--tls-certfile", certificate), ("--tls-keyfile", key)):
        try:
            if file is not None:
                file.read_bytes()
        except OSError as problem:
            raise typer.BadParameter(f"{option} {file}: {problem.strerror}") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, ValueError) as problem:
        said = getattr(problem, "reason", None) or str(problem) or "its key is not there, or has a password"
        raise typer.BadParameter(f"--tls-certfile {certificate}, --tls-keyfile {key}: {said}") from None


def _split(texts: list[str] | None) -> list[str]:
    """Values that are repeated, or have commas between."""
    return [part.strip() for text in texts or [] for part in text.split(",") if part.strip()]


def _users(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition(":") for text in _split(texts)]
    if any(not (name and colon and password) for name, colon, password in pairs):
        raise typer.BadParameter("--api-auth is USER:PASSWORD")
    return {name: password for name, _, password in pairs}


def _warn(setup: Setup, host: str, listen: Any) -> None:
    if listen is None and not setup.users and host not in ("127.0.0.1", "::1", "localhost"):
        typer.echo(f"warning: everybody who reaches {host} can use this server; see --api-auth", err=True)
