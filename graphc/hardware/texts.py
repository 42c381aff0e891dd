"""Reading what tools print. Nothing here raises, whatever the text: what is not a number is 0, what is not JSON is None."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from typing import Any

MIB = 1 << 20
UNITS = {"KB": 1 << 10, "MB": MIB, "GB": 1 << 30, "TB": 1 << 40}
LARGEST = 1 << 50
"""Bytes; a larger number is not a GPU's memory."""


LONGEST_VALUE = 1000


def whole(value: object, base: int = 10) -> int:
    """A number that is not negative, from a number or its text."""
    try:
        number = int(str(value).strip()[:40], base)
    except ValueError:
        return 0
    return max(number, 0)


def memory(count: object, unit: int = 1) -> int:
    """A size of memory in bytes."""
    size = whole(count) * unit
    return size if size <= LARGEST else 0


def sized(text: object) -> int:
    """Bytes of a text such as "8 GB"."""
    found = re.match(r"\s*(\d{1,9})\s*([KMGT]B)\b", str(text), re.ASCII)
    return memory(found[1], UNITS[found[2]]) if found else 0


def document(text: str) -> Any:
    """The JSON document that begins on one of the text's lines; tools print warnings before it."""
    for start in itertools.islice(re.finditer(r"^[ \t]*([\[{])", text, re.MULTILINE), 3):
        with contextlib.suppress(ValueError, RecursionError):
            return json.JSONDecoder().raw_decode(text, start.start(1))[0]
    return None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list; PowerShell writes a list of one as the one."""
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def text(value: Any) -> str:
    """A text of a JSON document; anything else is empty."""
    return value.strip() if isinstance(value, str) else ""


def pairs(lines: str, separator: str = ":") -> dict[str, str]:
    """Lines of "name: value" by name; the first counts."""
    found: dict[str, str] = {}
    for line in lines.splitlines():
        name, there, value = line.partition(separator)
        if there:
            found.setdefault(name.strip(), value.strip()[:LONGEST_VALUE])
    return found


def pci_address(written: object) -> str:
    """A PCI address as the kernel writes it; some tools have a domain of eight digits, capitals, or no domain."""
    found = re.fullmatch(
        r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", str(written).strip().lower(), re.ASCII
    )
    return f"{int(found[1] or '0', 16):04x}:{found[2]}" if found else ""


def pci_id(vendor: object, model: object) -> str:
    """Vendor and model as "10de:2684", from hexadecimal texts with or without 0x; empty if one is missing."""
    numbers = [whole(each, 16) for each in (vendor, model)]
    return "{:04x}:{:04x}".format(*numbers) if all(0 < each < 1 << 16 for each in numbers) else ""


def packed_address(domain: object, place: object) -> str:
    """The PCI address that a number holds: 8 bits of bus, 5 of device, 3 of function."""
    number = whole(place)
    if not 0 < number < 1 << 16 or whole(domain) >= 1 << 32:
        return ""
    return f"{whole(domain):04x}:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"
