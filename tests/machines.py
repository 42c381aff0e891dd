"""Recorded machines: what their files and tools say, in machines/*.txt.

`graphc doctor --record` writes such files; `RecordingMachine` says what is in them. Here they may also have
`### device NAME BACKEND DESCRIPTION` for a device that ggml has.
"""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "machines"
RECORDINGS = {path.stem: path for path in sorted(FOLDER.glob("*.txt"))}


@dataclass(frozen=True)
class RecordedDevice:
    name: str
    backend: str
    description: str
    pci_address: str = ""
    features: Mapping = field(default_factory=lambda: {"LLAMAFILE": "1"})


class RecordedMachine:
    """A `Machine` of a recording."""

    def __init__(self, recording):
        sections = [
            re.match(r"(\w+) ([^\n]*)\n?(.*)", part, re.DOTALL).groups()
            for part in re.split(r"^### ", recording, flags=re.MULTILINE)[1:]
        ]
        named = lambda kind: {name: text for each, name, text in sections if each == kind}  # noqa: E731
        ((head, _),) = named("system").items()
        self.system, self.architecture, *root = head.split()
        self.is_root = bool(root)
        self.files = named("file") | named("forbidden")
        self.forbidden, self.runs = named("forbidden"), named("run")
        self.tools = {*named("tool"), *(command.split()[0] for command in self.runs)}
        self.environment = dict(each.split("=", 1) for each in named("env"))
        self.devices = [RecordedDevice("CPU", "CPU", "a processor")]
        self.devices += [RecordedDevice(*each.split(maxsplit=2)) for each in named("device")]

    def read(self, path):
        return self.files.get(path, "")

    def find(self, pattern):
        """A pattern finds files, and the folders that they are in."""
        expression = re.compile(fnmatch.translate(pattern).replace(".*", "[^/]*"))
        paths = {path.rsplit("/", depth)[0] for path in self.files for depth in range(path.count("/"))}
        return sorted(path for path in paths if expression.match(path))

    def may_use(self, path):
        return path in self.files and path not in self.forbidden

    def which(self, tool):
        return f"/usr/bin/{tool}" if tool in self.tools and "/" not in tool else tool if tool in self.tools else ""

    def run(self, tool, *arguments):
        """By the whole command; PowerShell's by a word that is in it."""
        for name in (tool, tool.removeprefix("/usr/bin/")):
            if (command := " ".join([name, *arguments])) in self.runs:
                return self.runs[command]
        words = {key.split()[1]: text for key, text in self.runs.items() if tool == "powershell.exe" == key.split()[0]}
        return next((text for word, text in words.items() if word in command), "")

    def variable(self, name):
        return self.environment.get(name, "")


def recorded(name):
    return RecordedMachine(RECORDINGS[name].read_text())
