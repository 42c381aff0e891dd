"""A machine that remembers what it was asked, so that what is said of it can be examined elsewhere."""

from __future__ import annotations

from graphc.hardware.machine import Machine

LONGEST = 1 << 16
"""Characters that are kept of a file or an output."""


class RecordingMachine:
    """Answers as another machine does, and keeps the answers.

    `text` has them in sections: `### system SYSTEM ARCHITECTURE`, with `root` behind for its user, `### file PATH` and
    `### run COMMAND` with what was read, `### forbidden PATH` for a file that the user may not use, `### tool NAME`,
    `### env NAME=VALUE`.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.system, self.architecture, self.is_root = machine.system, machine.architecture, machine.is_root
        self.sections: dict[str, str] = {}

    def read(self, path: str) -> str:
        """See `Machine`."""
        return self._kept(f"file {path}", self.machine.read(path))

    def find(self, pattern: str) -> list[str]:
        """See `Machine`."""
        found = self.machine.find(pattern)
        for path in found:
            self.sections.setdefault(f"file {path}", "")
        return found

    def may_use(self, path: str) -> bool:
        """See `Machine`."""
        may = self.machine.may_use(path)
        if not may:
            self.sections[f"forbidden {path}"] = ""
        return may

    def which(self, tool: str) -> str:
        """See `Machine`."""
        found = self.machine.which(tool)
        if found:
            self.sections[f"tool {tool}"] = ""
        return found

    def run(self, tool: str, *arguments: str) -> str:
        """See `Machine`."""
        return self._kept(f"run {' '.join([tool, *arguments])}", self.machine.run(tool, *arguments))

    def variable(self, name: str) -> str:
        """See `Machine`."""
        value = self.machine.variable(name)
        self._kept(f"env {name}={value}", value and "\n")
        return value

    def text(self) -> str:
        """What was asked until now."""
        head = f"### system {self.system} {self.architecture}{' root' if self.is_root else ''}\n"
        return head + "".join(f"### {name}\n{text}" for name, text in sorted(self.sections.items()))

    def _kept(self, name: str, text: str) -> str:
        if text:
            self.sections[name] = "".join(f"{line}\n" for line in text[:LONGEST].splitlines())
        return text
