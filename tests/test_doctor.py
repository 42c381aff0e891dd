"""What `graphc doctor` says of recorded machines, as it is read: machines/*.doctor. GRAPHC_UPDATE=1 writes them anew."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from machines import FOLDER, RECORDINGS, RecordedDevice, RecordedMachine, recorded

import graphc.hardware.machine
import graphc.runtime.devices
from graphc import cli
from graphc.backends.table import BACKENDS
from graphc.commands.doctor import as_document, report
from graphc.hardware.advice import diagnose
from graphc.hardware.gpu import DISPLAY_ONLY, GPU, VENDORS
from graphc.hardware.needs.check import Lack
from graphc.hardware.needs.compilers import BUILD
from graphc.hardware.needs.table import NEEDS
from graphc.hardware.recording import RecordingMachine
from graphc.hardware.suits import GENERATED, REGISTRIES, SUITS
from graphc.hardware.system import MANAGERS, UNKNOWN, system_of


def said(machine, devices=None, installed=()):
    devices = machine.devices if devices is None else devices
    return "\n".join(report(diagnose(machine, devices, installed), devices)) + "\n"


def ways(machine, devices=(), installed=(), gpu=0):
    return {way.backend: way for way in diagnose(machine, devices, installed).advice[gpu].ways}


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_is_said_of_a_machine(name):
    path = FOLDER / f"{name}.doctor"
    text = said(recorded(name))
    if os.environ.get("GRAPHC_UPDATE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"see {path}; GRAPHC_UPDATE=1 accepts the new text"


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_of_a_machine_says_the_same(name):
    machine = recorded(name)
    recording = RecordingMachine(machine)
    assert said(recording, machine.devices) == said(machine)
    again = RecordedMachine(recording.text())
    assert said(again, machine.devices) == said(machine)
    assert RecordingMachine(again).is_root == machine.is_root


def test_the_tables_speak_of_the_same_backends():
    used = {backend for backends in SUITS.values() for backend in backends}
    assert used == set(REGISTRIES.values())
    assert used - {GENERATED} <= set(BACKENDS)
    assert {(backend, kind) for (_, kind), backends in SUITS.items() for backend in backends} == {*NEEDS} - {
        ("vulkan", "WSL")
    }
    assert {kind for _, kind in SUITS} == set(BUILD)
    assert {vendor for vendor, _ in SUITS} == set(VENDORS.values()) - DISPLAY_ONLY


@pytest.mark.parametrize("kind", ["Linux", "Windows", "Darwin"])
@pytest.mark.parametrize("manager", [*MANAGERS, ""])
def test_every_need_has_a_mend_everywhere(kind, manager):
    system = replace(system_of(recorded("nothing")), keys=tuple(key for key in (kind, manager, "*") if key), release="")
    for (backend, on), needs in NEEDS.items():
        for vendor in {
            vendor for (vendor, system_kind), names in SUITS.items() if system_kind == on and backend in names
        }:
            for need in (*needs.run, *needs.build, *BUILD[on]):
                gpu = GPU(vendor, architecture="8.9")
                found, what = need.mend(need.check(recorded("nothing"), gpu) or Lack("something"), gpu, system)
                assert what
                assert found in ("", UNKNOWN, manager)
                assert "{" not in what


def test_what_was_built_and_works_is_not_advised():
    machine = recorded("nvidia-ubuntu")
    cpu, cuda = machine.devices[0], RecordedDevice("CUDA0", "CUDA", "NVIDIA GeForce RTX 4090")
    vulkan = RecordedDevice("Vulkan1", "Vulkan", "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)", "0000:0e:00.0")
    text = said(machine, [cpu, cuda])
    assert "NVIDIA GeForce RTX 4090: used by cuda, as --device CUDA0\n" in text
    assert "nvidia-cuda-toolkit" not in text
    assert [each.gpu.vendor for each in diagnose(machine, [cpu, cuda]).idle] == ["AMD"]
    assert [each.gpu.vendor for each in diagnose(machine, [cpu, vulkan]).idle] == ["NVIDIA"]
    elsewhere = replace(vulkan, pci_address="0000:0f:00.0")
    assert len(diagnose(machine, [replace(cuda, pci_address="0000:02:00.0"), elsewhere]).idle) == 2
    assert len(diagnose(machine, [replace(vulkan, pci_address="")]).idle) == 2  # it may be any GPU of that name


def test_kernels_that_are_generated_are_a_way():
    machine = recorded("nvidia-ubuntu")
    device = RecordedDevice("cuda0 (generated)", "generated", "NVIDIA GeForce RTX 4090", "0000:01:00.0")
    text = said(machine, [device])
    assert "NVIDIA GeForce RTX 4090: used by generated, as --device cuda0 (generated)\n  cuda: missing: " in text
    assert [each.gpu.vendor for each in diagnose(machine, [device]).idle] == ["AMD"]
    assert len(diagnose(machine, [replace(device, pci_address="0000:0e:00.0")]).idle) == 2
    assert len(diagnose(machine, [replace(device, pci_address="", description="emulated")]).idle) == 2
    way = ways(machine)["generated"]
    assert (way.missing, way.steps) == (("a compiler for GPU kernels",), ("pip install ziglang",))
    machine.tools |= {"nvcc"}
    assert "generated: all that it needs is here" in said(machine)
    (query,) = (command for command in machine.runs if command.startswith("nvidia-smi"))
    machine.runs[query] = machine.runs[query].replace("8.9", "6.1")
    assert ways(machine)["generated"].never.startswith("its compute capability (6.1) is too old; 7.5 is the first")


def test_two_that_are_alike():
    machine = recorded("nvidia-servers-container")
    devices = [
        RecordedDevice(f"CUDA{i}", "CUDA", "NVIDIA H100 80GB HBM3", place)
        for i, place in enumerate(("0000:18:00.0", "0000:2a:00.0"))
    ]
    assert "NVIDIA H100 80GB HBM3: used by cuda, as --device CUDA0 or CUDA1" in said(machine, devices)


def test_the_best_way_is_still_advised_where_another_is_used():
    machine = recorded("nvidia-ubuntu")
    text = said(machine, [RecordedDevice("Vulkan0", "Vulkan", "NVIDIA GeForce RTX 4090")])
    assert "used by vulkan, as --device Vulkan0\n  cuda: missing: the CUDA toolkit (nvcc)\n" in text


def test_a_backend_that_was_built_and_finds_nothing():
    machine = recorded("nvidia-servers-container")
    way = ways(machine, installed=["cuda"])["cuda"]
    assert way.installed
    assert way.missing == ("a driver of version 580 or newer for CUDA 13 (550.54.15 is here)",)
    assert not any("install cuda" in step for step in way.steps)
    assert ways(recorded("amd-arch"), installed=["hip"])["hip"].steps == ("graphc backend install hip",)
    assert "installed, but finds no device" in said(recorded("amd-arch"), installed=["hip"])


@pytest.mark.parametrize(
    ("release", "capability", "missing"),
    [
        ("12.6", "8.9", ()),
        ("12.6", "12.0", ("CUDA 12.8 or newer for this GPU (CUDA 12.6 is here)",)),
        ("13.0", "6.1", ("CUDA 12 for this GPU (CUDA 13.0 is here, which no longer knows it)",)),
        ("13.0", "7.5", ("a driver of version 580 or newer for CUDA 13 (550.120 is here)",)),
        ("?", "8.9", ("CUDA 11.8 or newer for this GPU (CUDA of an unknown version is here)",)),
    ],
)
def test_a_toolkit_has_to_know_the_gpu_and_the_driver_the_toolkit(release, capability, missing):
    machine = recorded("nvidia-ubuntu")
    (query,) = (command for command in machine.runs if command.startswith("nvidia-smi"))
    machine.runs[query] = machine.runs[query].replace("8.9", capability)
    machine.runs["nvcc --version"] = f"Cuda compilation tools, release {release}, V{release}.85"
    machine.tools.add("nvcc")
    assert ("cuBLAS, a part of the CUDA toolkit" in ways(machine)["cuda"].missing) == (
        not missing or "driver" in missing[0]
    )
    machine.files["/usr/include/cublas_v2.h"] = ""
    assert ways(machine)["cuda"].missing == missing


@pytest.mark.parametrize(
    ("chip", "release", "hip"),
    [
        ("110000", "6.2.4", ""),
        ("110000", "6.0.2", "ROCm 6.1 or newer for this GPU (6.0.2 is here)"),
        ("120001", "6.2.4", "ROCm 6.4 or newer for this GPU (6.2.4 is here)"),
        ("100302", "6.4.0", "never"),
    ],
)
def test_a_chip_has_to_be_known_to_rocm(chip, release, hip):
    machine = recorded("amd-arch")
    machine.runs = {}
    machine.files["/sys/class/kfd/kfd/topology/nodes/1/properties"] = (
        f"gfx_target_version {chip}\nvendor_id 4098\ndevice_id 29772\nlocation_id 768\ndomain 0\n"
    )
    machine.files["/opt/rocm/.info/version"] = release
    way = ways(machine)["hip"]
    assert "; ".join(way.missing) == ("" if hip == "never" else hip)
    assert bool(way.never) == (hip == "never")


def test_backends_that_are_asked_for():
    """Without a GPU that one suits, only what builds it is looked for."""
    machine, nothing = recorded("nvidia-ubuntu"), recorded("nothing")
    hip, cuda = diagnose(machine, machine.devices, (), ["hip", "cuda"]).asked
    assert (cuda.missing, bool(hip.never)) == (("the CUDA toolkit (nvcc)",), True)
    vulkan, rpc = diagnose(nothing, nothing.devices, (), ["vulkan", "rpc"]).asked
    assert rpc.missing == ("a C++ compiler", "cmake", "make")
    assert vulkan.missing == ("Vulkan's headers", "glslc", "SPIR-V's headers", *rpc.missing)
    there = diagnose(nothing, nothing.devices, ["vulkan", "rpc"], ["vulkan", "rpc"])
    assert (
        "\n".join(report(there, []))
        == "vulkan: not possible, though it is installed: there is no GPU here that it suits\nrpc: installed"
    )
    used = diagnose(machine, [RecordedDevice("CUDA0", "CUDA", "")], (), ["cuda"])
    assert report(used, []) == ["cuda: works, as --device CUDA0"]


def test_a_wheel_needs_no_compiler():
    """Where compiled code of our own is there, the CPU is as fast as it gets."""
    machine = recorded("apple-intel")
    for installed in ((), ("cpu",)):
        found = diagnose(machine, machine.devices, installed)
        assert found.cpu.installed == bool(installed)
        assert ("with a C compiler" in "\n".join(report(found, machine.devices))) == (not installed)


def test_a_container_that_shows_gpus_and_does_not_give_them():
    machine = recorded("nvidia-ubuntu")
    machine.files = {path: text for path, text in machine.files.items() if not path.startswith("/dev")} | {
        "/.dockerenv": ""
    }
    machine.runs = {}
    rtx, radeon = ways(machine)["cuda"], ways(machine, gpu=1)["vulkan"]
    assert rtx.missing[0] == "NVIDIA's devices (no /dev/nvidiactl)"
    assert rtx.steps[0].startswith("start the container again with `--gpus all ")
    assert radeon.steps[0] == "start the container again with `--device /dev/dri --device /dev/kfd`"
    machine.files["/dev/nvidiactl"] = ""
    assert ways(machine)["cuda"].missing == ("the CUDA toolkit (nvcc)",)


def test_root_has_no_sudo():
    machine = recorded("nvidia-ubuntu")
    assert "    sudo apt install " in said(machine)
    machine.is_root = True
    assert "    apt install " in said(machine)
    assert "sudo" not in said(machine)


def test_the_document_is_json_and_says_the_same():
    for name in RECORDINGS:
        found = diagnose(recorded(name), recorded(name).devices)
        document = json.loads(json.dumps(as_document(found)))
        assert [gpu["vendor"] for gpu in document["gpus"]] == [gpu.vendor for each in found.advice for gpu in each.gpus]
    assert [way["backend"] for way in document["gpus"][0]["ways"]] == ["cuda", "generated"]


@pytest.fixture
def graphc_command(capsys, monkeypatch):
    """Runs a command on a recorded machine; returns its status, and what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(graphc.hardware.machine, "ThisMachine", lambda: recorded(name))
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return run


def test_the_commands(graphc_command, tmp_path):
    status, out, _ = graphc_command("nvidia-ubuntu", "doctor")
    assert status == 0
    assert "NVIDIA GeForce RTX 4090: not used\n  cuda: missing: the CUDA toolkit (nvcc)\n" in out
    document = json.loads(graphc_command("nvidia-ubuntu", "doctor", "--json")[1])
    assert document["gpus"][0]["ways"][0]["steps"] == [
        "sudo apt install nvidia-cuda-toolkit",
        "graphc backend install cuda",
    ]
    assert document["devices"][0]["name"] == "CPU"
    assert "look into it" in graphc_command("nvidia-ubuntu", "doctor", "--record", str(tmp_path / "here"))[2]
    assert "GeForce RTX 4090" in (tmp_path / "here").read_text()
    assert graphc_command("nvidia-ubuntu", "doctor", "--record", str(tmp_path))[0] == 1
    assert graphc_command("nvidia-ubuntu", "doctor", "Cuda")[1].startswith(
        "cuda: missing: the CUDA toolkit (nvcc)\n  sudo"
    )
    assert graphc_command("nothing", "doctor", "gpu")[::2] == (
        1,
        "error: no backend 'gpu'; there is " + ", ".join(BACKENDS) + "\n",
    )
    out = graphc_command("nvidia-ubuntu", "devices")[1]
    assert out.endswith("not used: NVIDIA GeForce RTX 4090, AMD Raphael; `graphc doctor` says how to use it\n")
    assert "doctor" not in graphc_command("virtual-vmware", "devices")[1]


def test_nothing_at_all_can_run(graphc_command, monkeypatch):
    monkeypatch.setattr(graphc.runtime.devices, "devices", list)
    status, out, err = graphc_command("nothing", "doctor")
    assert status == 1
    assert "none found" in out
    assert err.startswith("error: nothing can run: ggml has no device; pip install ")


def test_a_ggml_that_cannot_be_loaded():
    code = "import sys; sys.modules['ggml'] = None; from graphc.cli import main; main(['doctor'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Works now\n  nothing\n" in done.stdout
    assert re.match(
        r"error: nothing can run: ggml cannot be loaded \(.*\); pip install .*ggml-python==[0-9.]+\n", done.stderr
    )
