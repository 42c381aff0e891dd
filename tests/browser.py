"""A Chromium without a window, driven through its own protocol over two pipes."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from time import monotonic, sleep
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--no-first-run",
)
KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
PATIENCE = 60
"""Seconds that an answer may take."""


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page. As a context manager, it ends the browser."""

    def __init__(self, program: str, width: int = 1600, height: int = 1000) -> None:
        self.home = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        theirs_in, self.outgoing = os.pipe()
        self.incoming, theirs_out = os.pipe()
        command = [
            program,
            *FLAGS,
            f"--user-data-dir={self.home.name}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        pipes = ["bash", "-c", f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"', "bash", *command]
        self.process = subprocess.Popen(
            pipes, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.numbers = itertools.count(1)
        self.unread = b""
        self.session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.outgoing)
        os.close(self.incoming)
        self.home.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command's result. What else happened meanwhile is in `events`."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.outgoing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def next_message(self) -> dict[str, Any]:
        limit = monotonic() + PATIENCE
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.incoming], [], [], max(0, limit - monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self.incoming, 1 << 20)
            assert read, "the browser has ended"
            self.unread += read
        message, _, self.unread = self.unread.partition(b"\0")
        return json.loads(message)

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a file, and wait until its scripts have run."""
        self.visit(path.absolute().as_uri() + fragment)

    def visit(self, address: str) -> None:
        """The same of an address."""
        for url in ("about:blank", address):  # another fragment alone loads nothing
            self.events.clear()
            self.call("Page.navigate", url=url)
            while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
                self.events.append(self.next_message())

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression as soon as it is something."""
        limit = monotonic() + PATIENCE
        while monotonic() < limit:
            found = self.run(script)
            if found or found == {}:  # an element
                return found
            sleep(0.03)
        raise AssertionError(f"{script} did not come true in {PATIENCE} s")

    def drawn(self) -> None:
        """Wait until what was changed is on the screen."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def place(self, selector: str) -> tuple[float, float]:
        """The middle of an element, which is brought into view. It must be there to be touched."""
        found = self.run(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            if (!element) return 'is not there';
            element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
            const box = element.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            const above = document.elementFromPoint(x, y);
            return element.contains(above) || above?.contains(element) ? [x, y] : `is under ${{above?.outerHTML.slice(0, 200)}}`;
        }})()""")
        assert isinstance(found, list), f"{selector} {found}"
        return found[0], found[1]

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Something that the mouse does: mousePressed, mouseMoved, mouseReleased."""
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def click(self, selector: str) -> None:
        """As somebody clicks."""
        x, y = self.place(selector)
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def drag(self, start: tuple[float, float], *points: tuple[float, float]) -> None:
        """Press the mouse, move it, let it go."""
        self.mouse("mousePressed", *start)
        for point in points:
            self.mouse("mouseMoved", *point)
        self.mouse("mouseReleased", *(points or (start,))[-1])

    def type(self, text: str) -> None:
        """Where the focus is."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, ctrl: bool = False, shift: bool = False) -> None:
        """A key, by its name in JavaScript."""
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 else 0)
        pressed = {"key": key, "modifiers": 2 * ctrl + 8 * shift, "windowsVirtualKeyCode": code}
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 and not ctrl else "")
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **pressed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def drop(self, selector: str, *paths: Path) -> None:
        """Drag files over an element, and let them go."""
        x, y = self.place(selector)
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)
            self.drawn()  # something may lie over the element now

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window's size, and the system's colours."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        colours = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[colours])

    def complaints(self) -> list[str]:
        """Errors of scripts, of the page's policy and of loading since the page was opened."""
        self.run("0")
        return [
            json.dumps(event["params"])
            for event in self.events
            if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        ]

    def requests(self) -> list[str]:
        """What the page asked for since it was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def picture(self, path: Path) -> None:
        """A screenshot."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
