"""The server's page is current: its tables are those of the program."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_server_are_current():
    spec = importlib.util.spec_from_file_location("server_tables", ROOT / "docs" / "server_tables.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    text = (ROOT / "docs" / "server.md").read_text()
    assert made.page(text) == text, "run: python docs/server_tables.py"
    for name, table in made.TABLES.items():
        assert f"<!-- {name} -->\n{table()}\n" in text
