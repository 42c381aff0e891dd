"""The site of the documentation: it is built without a warning, its links lead somewhere, and it needs nothing of a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import graphc
import graphc_images

pytest.importorskip("furo")
pytest.importorskip("myst_parser")
pytest.importorskip("fastapi")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
"""What a browser fetches by itself."""


class Page(HTMLParser):
    """What a page points to, what it loads, and the anchors in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        if LOADED.get(tag) in given:
            self.loaded.add(given[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, ROOT / "docs/site.py", folder], capture_output=True, text=True, check=False, cwd=folder
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}


def test_every_page_is_there(site: Path) -> None:
    missing = {path.stem for path in (ROOT / "docs").glob("*.md")} - {path.stem for path in site.glob("*.html")}
    assert not missing
    front = (site / "index.html").read_text()
    assert all(f'href="{path.stem}.html"' in front for path in (ROOT / "docs").glob("*.md") if path.stem != "index")


def test_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    followed, broken = 0, []
    for path, page in pages.items():
        for link in page.links | page.loaded:
            if urlsplit(link).scheme or link == "#":
                continue
            address, anchor = urlsplit(link).path, urlsplit(link).fragment
            target = (path.parent / unquote(address)).resolve() if address else path
            followed += 1
            known = pages.get(target)
            if not target.is_file() or (anchor and known is not None and unquote(anchor) not in known.anchors):
                broken.append(f"{path.name}: {link}")
    assert not broken
    assert followed > 500


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert not {each for page in pages.values() for each in page.loaded if re.match(r"(\w+:)?//", each)}
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text()), style


def test_public_names_are_described_and_found(site: Path, pages: dict[Path, Page]) -> None:
    anchors, found = pages[site / "api.html"].anchors, (site / "searchindex.js").read_text()
    for package in (graphc, graphc_images):
        for name in package.__all__:
            assert f"{package.__name__}.{name}" in anchors
            assert name in found


@pytest.mark.parametrize(
    "text", ["[broken](nowhere.md)", "[broken](versions.md#nowhere)", "# A\n\n### C"], ids=["page", "anchor", "heading"]
)
def test_a_warning_is_an_error(tmp_path: Path, text: str) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("conf.py", "site.py"):
        (docs / name).write_text((ROOT / "docs" / name).read_text())
    (docs / "versions.md").write_text("---\norphan: true\n---\n# Versions\n")
    (docs / "index.md").write_text(f"# Front\n\n{text}\n")
    done = subprocess.run(
        [sys.executable, docs / "site.py", tmp_path / "site"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "WARNING" in done.stderr
