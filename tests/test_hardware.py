"""GPUs as the system's tools describe them: each source's format, several sources of one GPU, and tools that fail."""

import os
import stat
import sys
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import RECORDINGS, RecordedMachine, recorded

from graphc.hardware.find import find_gpus
from graphc.hardware.gpu import GPU, is_integrated, merge, plain_name
from graphc.hardware.machine import ThisMachine, output_of
from graphc.hardware.sources import amd, apple, nvidia, pci, vulkan, windows
from graphc.hardware.system import system_of, version

GIB = 1 << 30
PARSERS = {
    "nvidia-smi": nvidia.from_smi,
    "nvidia's files": nvidia.from_proc,
    "kfd": amd.from_kfd,
    "rocm-smi": amd.from_smi,
    "rocminfo": amd.from_rocminfo,
    "uevent": pci.from_uevent,
    "lspci": pci.from_lspci,
    "vulkaninfo": vulkan.from_summary,
    "controllers": windows.from_controllers,
    "system_profiler": apple.from_profiler,
}


def test_the_gpus_of_a_machine_with_two_vendors():
    rtx, radeon = find_gpus(recorded("nvidia-ubuntu"))
    assert rtx == GPU(
        "NVIDIA", "NVIDIA GeForce RTX 4090", 24564 << 20, "nvidia", "550.120", "8.9", False, "0000:01:00.0", "10de:2684"
    )
    assert radeon == GPU("AMD", "Raphael", 512 << 20, "amdgpu", "", "gfx1036", True, "0000:0e:00.0", "1002:164e")


@pytest.mark.parametrize(
    ("name", "found"),
    {
        "amd-arch": [("AMD Radeon RX 7900 XTX", 25753026560, "gfx1100", False, "6.11.9-arch1-1")],
        "amd-apu-fedora": [("AMD Radeon 780M", 4 * GIB, "gfx1103", True, "Mesa 24.2.7")],
        "intel-ubuntu": [("Iris Xe Graphics", 0, "", True, "")],
        "intel-arc-debian": [
            ("Intel Arc A770 Graphics", 16 * GIB, "", False, "Mesa 25.0.7-2"),
            ("Intel UHD Graphics 770", 0, "", True, "Mesa 25.0.7-2"),
        ],
        "apple-m2": [("Apple M2 Pro", 16 * GIB, "Metal 3", True, "")],
        "apple-intel": [
            ("AMD Radeon Pro 5500M", 8 * GIB, "Metal 3", False, ""),
            ("Intel UHD Graphics 630", 32 * GIB, "Metal 3", True, ""),
        ],
        "windows-german": [
            ("NVIDIA GeForce RTX 3060 Laptop GPU", 6 * GIB, "8.6", False, "560.94"),
            ("Intel UHD Graphics", 1 * GIB, "", True, "31.0.101.5333"),
        ],
        "windows-chinese-amd": [
            ("AMD Radeon RX 7800 XT", 0x3FC000000, "", False, "32.0.12019.1028"),
            ("", 0, "", None, ""),
        ],
        "windows-snapdragon": [("Qualcomm Adreno X1-85 GPU", 0, "", True, "31.0.87.0")],
        "wsl-nvidia": [("NVIDIA GeForce RTX 3070 Ti", 8 * GIB, "8.6", False, "551.86")],
        "nvidia-old-driver": [("Tesla K80", 11441 << 20, "", False, "470.256.02")],
        "nvidia-mismatch": [("NVIDIA GeForce RTX 3060", 0, "", False, "565.57.01")],
        "nvidia-servers-container": [("NVIDIA H100 80GB HBM3", 81559 << 20, "9.0", False, "550.54.15")] * 2,
        "virtual-virtio": [("Virtio 1.0 GPU", 0, "", None, "")],
        "virtual-vmware": [("SVGA II Adapter", 0, "", None, "")],
        "nothing": [],
        "broken": [("NVIDIA Graphics Device", 0, "", False, ""), ("", 0, "", None, "")],
    }.items(),
)
def test_the_gpus_of_a_machine(name, found):
    gpus = find_gpus(recorded(name))
    assert [(gpu.model, gpu.memory, gpu.architecture, gpu.integrated, gpu.driver_version) for gpu in gpus] == found


def test_the_registry_says_what_32_bits_cannot():
    controllers = recorded("windows-german").runs["powershell.exe Win32_VideoController"]
    assert [gpu.memory for gpu in windows.from_controllers(controllers)] == [
        0,
        GIB,
    ]  # 6 GiB are 4 GiB less a little there
    registry = recorded("windows-german").runs["powershell.exe qwMemorySize"]
    assert [gpu.memory for gpu in windows.from_controllers(controllers, registry)] == [6 * GIB, GIB]
    listed = registry.replace("6442450944", '{"value": [0, 0, 0, 128, 1, 0, 0, 0], "Count": 8}')
    assert [gpu.memory for gpu in windows.from_controllers(controllers, listed)] == [6 * GIB, GIB]


def test_a_driver_of_nvidia_has_its_own_version_on_windows():
    one = '{"Name": "NVIDIA", "DriverVersion": "31.0.15.5186", "PNPDeviceID": "PCI\\\\VEN_10DE&DEV_2482&X"}'
    assert windows.from_controllers(one)[0].driver_version == "551.86"
    assert windows.from_controllers(one.replace("10DE", "1002"))[0].driver_version == "31.0.15.5186"
    assert windows.from_controllers(one.replace('"Name"', '"ConfigManagerErrorCode": 43, "Name"'))[0].driver == ""


def test_the_kernel_module_says_its_version():
    line = "NVRM version: NVIDIA UNIX {}  Fri Sep 13 10:10:01 UTC 2024\nGCC version:  gcc version 13.2.0"
    assert nvidia.kernel_version(line.format("x86_64 Kernel Module  550.120")) == "550.120"
    assert nvidia.kernel_version(line.format("Open Kernel Module for x86_64  565.57.01  Release Build")) == "565.57.01"
    assert nvidia.kernel_version("") == ""


@pytest.mark.parametrize(("number", "chip"), [(90010, "gfx90a"), (110501, "gfx1151"), (90402, "gfx942"), (0, None)])
def test_the_kernel_s_number_of_a_chip(number, chip):
    found = amd.from_kfd(f"gfx_target_version {number}\nvendor_id 4098\ndevice_id 29772\nlocation_id 49920\ndomain 1\n")
    assert [gpu.architecture for gpu in found] == ([chip] if chip else [])
    assert [gpu.pci_address for gpu in found] == (["0001:c3:00.0"] if chip else [])


def test_an_accelerator_that_is_no_display():
    instinct = "PCI_CLASS=120000\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:05:00.0\n"
    assert pci.from_uevent(instinct)[0].vendor == "AMD"
    assert pci.from_uevent(instinct.replace("1002:74A1", "1DA3:1020")) == []
    assert pci.from_uevent(instinct.replace("120000", "20000")) == []


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", "Intel Arc A770 Graphics"),
        ("AMD Radeon RX 6800 (RADV NAVI21)", "AMD Radeon RX 6800"),
        ("AD102 [GeForce RTX 4090]", "GeForce RTX 4090"),
        ("Microsoft Direct3D12 (AMD Radeon(TM) Graphics)", "AMD Radeon Graphics"),
        ("Intel(R) UHD Graphics 620 (KBL GT2)", "Intel UHD Graphics 620"),
        ("NVIDIA GeForce GTX 1050 (NVK GP107)", "NVIDIA GeForce GTX 1050"),
    ],
)
def test_names(written, plain):
    assert plain_name(written) == plain


def test_one_gpu_by_several_sources_and_two_that_are_alike():
    one = GPU("NVIDIA", pci_id="10de:2204", pci_address="0000:01:00.0")
    two = replace(one, pci_address="0000:02:00.0")
    unplaced = GPU("NVIDIA", "RTX 3090", pci_id="10de:2204")
    assert [gpu.pci_address for gpu in merge([[one, two]])] == ["0000:01:00.0", "0000:02:00.0"]
    assert [gpu.model for gpu in merge([[one, two], [unplaced] * 2])] == ["RTX 3090"] * 2
    assert len(merge([[unplaced, unplaced], [two, one]])) == 2
    assert len(merge([[one], [unplaced, unplaced]])) == 1  # two drivers for one
    assert merge([[one], [replace(one, driver="nouveau", vendor="Other")]])[0].vendor == "NVIDIA"


def test_what_is_part_of_a_processor():
    assert is_integrated(GPU("NVIDIA", "Orin"))
    assert is_integrated(GPU("NVIDIA", "NVIDIA GeForce RTX 4090")) is False
    assert is_integrated(GPU("Intel", "Intel Arc Graphics"))
    assert is_integrated(GPU("Intel", "Intel Arc B580 Graphics")) is False
    assert is_integrated(GPU("Intel", pci_address="0000:03:00.0")) is False
    assert is_integrated(GPU("AMD", "AMD Radeon 780M Graphics"))
    assert is_integrated(GPU("AMD", "AMD Radeon RX 7600")) is False
    assert is_integrated(GPU("AMD", architecture="gfx1100")) is False
    assert is_integrated(GPU("AMD")) is None
    assert is_integrated(GPU("VMware", "SVGA II Adapter")) is None


def test_facts_that_are_false_or_zero_stay():
    first = GPU("Intel", integrated=False, pci_address="0000:00:02.0")
    assert merge([[first], [replace(first, integrated=True)]])[0].integrated is False


@pytest.mark.parametrize("source", PARSERS)
@given(data=st.data())
def test_no_text_is_an_error(source, data):
    """Random text, and real outputs of which parts are cut out, doubled or replaced."""
    real = data.draw(st.sampled_from([text for text in TEXTS if text]))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(real))] * 2)))
    text = real[:start] + data.draw(st.text() | st.sampled_from(["[" * 100_000, real, "٣", "9" * 5000])) + real[end:]
    for gpu in PARSERS[source](data.draw(st.sampled_from([text, text[start:]]))):
        assert gpu.memory >= 0
        assert len(gpu.name) < 200


TEXTS = [
    text
    for name in RECORDINGS
    for machine in [recorded(name)]
    for text in (*machine.files.values(), *machine.runs.values())
]


@pytest.mark.parametrize("name", RECORDINGS)
@given(data=st.data())
def test_no_machine_is_an_error(name, data):
    machine = recorded(name)
    kept = data.draw(st.sets(st.sampled_from([*machine.files, *machine.runs])))
    machine.files = {path: text for path, text in machine.files.items() if path in kept}
    machine.runs = {command: text for command, text in machine.runs.items() if command in kept}
    assert all(gpu.vendor for gpu in find_gpus(machine))
    assert system_of(machine).keys[-1] == "*"


def test_a_system_without_sources():
    assert find_gpus(RecordedMachine("### system Plan9 mips\n")) == []


# A real machine: files below a folder, tools that are programs


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A folder of tools, alone on the path; a function writes one."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    (tmp_path / "bin").mkdir()

    def write(name, script):
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return write


posix = pytest.mark.skipif(os.name != "posix", reason="tools are shell scripts")


@posix
def test_tools_that_answer_fail_hang_and_are_not_there(tools, tmp_path):
    machine, hurried = (ThisMachine(str(tmp_path), seconds) for seconds in (60, 0.2))
    tools("answers", 'echo "$1 in $LC_ALL"; echo noise >&2')
    tools("fails", "echo said; exit 9")
    tools("hangs", "echo said; while :; do :; done & wait")
    tools("garbage", r"printf '\377\376\0'")
    tools("counts", f"echo x >>{tmp_path}/count")
    assert machine.run("answers", "hello") == "hello in C\n"
    assert machine.run("fails") == "said\n"
    assert hurried.run("hangs") == ""
    assert machine.run("garbage") == "��\0"
    assert machine.run("missing") == ""
    assert machine.run("counts") == machine.run("counts") == ""
    assert (tmp_path / "count").read_text() == "x\n"


@posix
def test_what_a_hanging_tool_started_ends_with_it(tools, tmp_path):
    tools("hangs", f"(while :; do echo >>{tmp_path}/alive; /bin/sleep 0.05; done) & wait")
    for seconds in (0.3, 3, 30):  # a busy machine may not have begun it
        assert output_of([str(tmp_path / "bin" / "hangs")], seconds) == ""
        if (tmp_path / "alive").exists():
            break
    size = (tmp_path / "alive").stat().st_size
    time.sleep(0.3)
    assert (tmp_path / "alive").stat().st_size == size > 0


@posix
def test_the_files_of_a_root(tools, tmp_path):
    device = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    device.mkdir(parents=True)
    (device / "uevent").write_text("DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:03:00.0\n")
    (device / "mem_info_vram_total").write_text("25753026560\n")
    (device / "config").write_bytes(b"\xff" * 64)
    tools("nvidia-smi", "echo Failed to initialize NVML: Driver/library version mismatch; exit 18")
    machine = ThisMachine(str(tmp_path))
    machine.system = "Linux"
    (found,) = find_gpus(machine)
    assert (found.name, found.memory, found.driver) == ("AMD GPU 1002:744c", 25753026560, "amdgpu")
    assert machine.read("/sys/bus/pci/devices/0000:03:00.0") == machine.read("/a\0b") == ""
    assert machine.find("/sys/bus/*/devices") == ["/sys/bus/pci/devices"]
    assert machine.may_use("/sys/bus/pci/devices/0000:03:00.0/uevent")


def test_this_machine_is_looked_at_without_an_error():
    machine = ThisMachine()
    assert all(gpu.vendor for gpu in find_gpus(machine))
    assert system_of(machine).name
    assert not machine.find("/no/such/*")


def test_versions_are_numbers():
    assert version("release 12.10, V12.10.3") == (12, 10)
    assert version("none") == ()
    assert version("6.2.4-1") > version("6.2")
