"""Numbers of other programs, which record_oracles.py wrote down."""

import json
from pathlib import Path

ORACLES = json.loads((Path(__file__).parent / "oracles.json").read_text())
