"""Renders a program as a C++ project that people can read.

The steps: `regions` brings the calls of each module together, `weights` makes structs that mirror the modules, `functions`
lets modules with the same calls share a function, `loops` finds repeated ones in a row, `variables` and `body` write the
statements, and `header`, `source`, `example` and `project` the files. A program in which the host acts is first taken apart
by `parts`; `steps` writes what the host does.
"""

from graphc.targets.ggml.cpp.project import render_project, write_project

__all__ = ["render_project", "write_project"]
