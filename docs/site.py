"""Builds the site of the documentation: `python docs/site.py DIR`, with what the extra `docs` installs. A warning is an error.

Its pages need nothing of a network, and no server: the search works in the browser.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sphinx.cmd.build import main as sphinx

DOCS = Path(__file__).parent


def build(folder: Path) -> int:
    """The site in a folder that is made, and Sphinx's exit status."""
    with tempfile.TemporaryDirectory() as parsed:
        return sphinx(["-b", "html", "-q", "-W", "--keep-going", "-d", parsed, str(DOCS), str(folder)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path)
    raise SystemExit(build(parser.parse_args().folder))
