"""`SessionOptions` and `RunOptions`, for code that was written for onnxruntime.

What decides how onnxruntime works inside is taken and means nothing here: results are the same. What would change results or
write files, and is not there, is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphc.errors import GraphcError, InputError

IGNORED: Mapping[str, Any] = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "execution_mode": None,
    "execution_order": None,
    "graph_optimization_level": None,
    "inter_op_num_threads": 0,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "profile_file_prefix": "onnxruntime_profile_",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}
"""What may be set and changes nothing, with the values before."""

REFUSED = {
    "enable_profiling": "a Session does not write profiles: graphc profile MODEL",
    "optimized_model_filepath": "a Session does not write its model: graphc.compile(model, output)",
}
"""What must stay as it is, and what does it instead."""


class SessionOptions:
    """What a `Session` is told. `intra_op_num_threads` are the CPU's threads, 0 for all processors. onnxruntime's own
    `SessionOptions` do too, but for sizes, which cannot be read from them."""

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.enable_profiling = False
        self.optimized_model_filepath = ""
        self.__dict__.update(IGNORED)
        self.dims: dict[str, int] = {}
        self._entries: dict[str, str] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (*IGNORED, *REFUSED, "intra_op_num_threads", "dims", "_entries"):
            raise InputError(f"SessionOptions have no {name!r}")
        object.__setattr__(self, name, value)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give a named size of the model its value."""
        self.dims[name] = size

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Remember a setting, which changes nothing."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """A setting that was added. Raises InputError."""
        return _entry(self._entries, key)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Raises GraphcError: sizes are known by their names."""
        raise GraphcError(
            f"sizes are known by name, not by denotation {denotation!r}: add_free_dimension_override_by_name"
        )

    def add_initializer(self, name: str, value: Any) -> None:
        """Raises GraphcError: weights come from a checkpoint."""
        raise GraphcError(f"a Session takes no initializer {name!r}: graphc.load(engine, weights=...)")

    def register_custom_ops_library(self, path: str) -> None:
        """Raises GraphcError: libraries of onnxruntime's operators cannot be loaded."""
        raise GraphcError(f"{path}: a Session loads no libraries of operators; CONTRIBUTING.md says how to add one")


class RunOptions:
    """What a run is told. With `terminate` it does not begin, and ends soon if that is set in another thread meanwhile."""

    def __init__(self) -> None:
        self.terminate = False
        self.only_execute_path_to_fetches = False
        self.log_severity_level, self.log_verbosity_level, self.logid = -1, 0, ""
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Remember a setting, which changes nothing."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """A setting that was added. Raises InputError."""
        return _entry(self._entries, key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Raises GraphcError: LoRAs are those of the model."""
        raise GraphcError("adapters are put on a model, and stay for all runs: Model.load_lora")


def check_session_options(options: Any) -> None:
    """Raises InputError for what a Session cannot do."""
    for name, instead in REFUSED.items():
        if getattr(options, name, None):
            raise InputError(f"SessionOptions.{name}: {instead}")


def check_run_options(options: Any) -> None:
    """Raises GraphcError if the run is to end."""
    if getattr(options, "terminate", False):
        raise GraphcError("RunOptions.terminate is set: nothing was run")


def stopped(options: Any) -> Callable[[], bool] | None:
    """What tells that a run is to end; None if nothing can."""
    return None if options is None else lambda: bool(getattr(options, "terminate", False))


def _entry(entries: Mapping[str, str], key: str) -> str:
    if key not in entries:
        raise InputError(f"no setting {key!r} was added")
    return entries[key]
