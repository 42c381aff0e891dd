"""HTTPS, and the examples of a unit for systemd and of a file for containers."""

import json
import re
import shlex
import shutil
import ssl
import subprocess
import tomllib
from pathlib import Path

import httpx
import pytest
import typer.main
from served import SMALL, Process, write_models
from typer.testing import CliRunner

from graphc_server.commands import serve

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "server"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Two certificates for this machine, each with its key, signed by themselves."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("one", "two"):
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
        files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
        name_of_it = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run(["openssl", "req", *kind, *files, *name_of_it], check=True, capture_output=True)
    return folder


@pytest.mark.torch
def test_requests_over_https(certificates, tmp_path):
    pytest.importorskip("torch")
    models = write_models(tmp_path / "models", "one")
    files = {name: certificates / f"one.{name}" for name in ("pem", "key")}
    trusts = ssl.create_default_context(cafile=files["pem"])
    running = Process(
        models, tmp_path / "data", "--tls-certfile", files["pem"], "--tls-keyfile", files["key"], trusts=trusts
    )
    try:
        made = running.client.post("/sdapi/v1/txt2img", json=SMALL)
        assert made.status_code == 200
        assert len(made.json()["images"]) == 1
        assert running.client.get("/").headers["content-type"].startswith("text/html")
        connect = pytest.importorskip("websockets.sync.client").connect
        with connect(f"wss://127.0.0.1:{running.port}/ws?clientId=a", ssl=trusts) as socket:
            assert json.loads(socket.recv(20))["type"] == "status"
        with pytest.raises(httpx.ConnectError):  # nobody vouches for it
            httpx.get(f"https://127.0.0.1:{running.port}/health")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{running.port}/health")
        assert running.client.get("/health").status_code == 200
    finally:
        assert "Traceback" not in running.end()


WRONG = {
    "absent.pem one.key": "absent.pem",
    "one.pem absent.key": "absent.key",
    "one.pem two.key": "one.pem",
    "one.key one.key": "one.key",
    "nothing.pem one.key": "nothing.pem",
    "one.pem ": "one.pem",
    " one.key": "--tls-certfile",
    ". one.key": "--tls-certfile",
    "one.pem locked.key": "one.pem",
}
"""A certificate and a key that cannot be, and what the error names."""


@pytest.mark.parametrize(("given", "named"), WRONG.items())
def test_a_wrong_file_of_https_is_named(certificates, tmp_path, given, named):
    (certificates / "nothing.pem").write_text("nothing")
    lock = ["openssl", "ec", "-aes256", "-passout", "pass:secret"]
    locked = ["-in", certificates / "one.key", "-out", certificates / "locked.key"]
    subprocess.run([*lock, *locked], check=True, capture_output=True)
    options = []
    for option, name in zip(("--tls-certfile", "--tls-keyfile"), given.split(" "), strict=True):
        options += [option, str(certificates / name)] if name else []
    found = CliRunner().invoke(serve, ["--data", str(tmp_path), "--port", "0", *options])
    said = re.sub(r"[│\s]+", "", found.output)
    assert found.exit_code == 2, found.output
    assert named in said
    assert "Traceback" not in found.output


def accepted(words):
    """The options that `graphc serve` takes from a command line, as it reads them."""
    program, command, *options = words
    assert (Path(program).name, command) == ("graphc", "serve")
    context = typer.main.get_command(serve).make_context("serve", list(options))
    return {name: value for name, value in context.params.items() if value is not None}


def test_the_unit_for_systemd(tmp_path):
    text = (EXAMPLES / "graphc.service").read_text()
    settings = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))
    given = accepted(shlex.split(settings["ExecStart"]))
    assert float(settings["TimeoutStopSec"]) > given["patience"] + 10  # it is killed only if it hangs
    state, cache = Path("/var/lib") / settings["StateDirectory"], Path("/var/cache") / settings["CacheDirectory"]
    assert given["data"] == state  # the one folder that may be written to, besides the cache
    assert settings["Environment"] == f"XDG_CACHE_HOME={cache}"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    program = shlex.split(settings["ExecStart"])[0]
    unit = tmp_path / "graphc.service"
    unit.write_text(text.replace(program, shutil.which("true")))
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True, text=True
    )
    about = [line for line in (found.stdout + found.stderr).splitlines() if "graphc" in line]
    assert found.returncode == 0, found.stderr
    assert not about


def test_the_file_for_containers():
    lines = (EXAMPLES / "Containerfile").read_text().splitlines()
    steps = [line.split(" ", 1) for line in lines if re.match(r"[A-Z]+ ", line)]
    by_name = dict(steps)
    assert next(name for name, _ in steps) == "FROM"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.fullmatch(r"python:(\d+)\.(\d+)-slim", by_name["FROM"])
    assert tuple(map(int, version.groups())) >= tuple(map(int, project["requires-python"].strip(">=").split(".")))
    (install,) = [rest for _, rest in steps if "pip install" in rest]
    folder, extra = re.search(r"'(/\w+)\[(\w+)\]'", install).groups()
    assert install.startswith(f"--mount=type=bind,target={folder},rw pip ")  # so that no layer has the sources
    assert extra in project["optional-dependencies"]
    given = accepted(json.loads(by_name["ENTRYPOINT"]))
    assert given["data"] == Path(by_name["VOLUME"])
    assert given["port"] == int(by_name["EXPOSE"])
    assert given["host"] == "0.0.0.0"
    assert any(
        f"mkdir {given['data']}" in rest and f"chown {by_name['USER']} {given['data']}" in rest for _, rest in steps
    )
    commands = [line[2:] for line in lines if line.startswith("# podman")]
    assert f"-f {(EXAMPLES / 'Containerfile').relative_to(ROOT)} ." in commands[0]
    assert f":{given['port']} " in commands[1]
    assert all(f":{path}" in commands[1] for path in (given["models"][0], given["data"]))
