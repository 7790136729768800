"""rlvr: reinforcement learning with verifiable rewards.

What a plugin may import from the core is listed in ``__all__``; importing it loads no torch. Each
name is imported when first used, so that ``import rlvr_core`` itself costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.errors import (
        ConfigError,
        DataError,
        MachineError,
        PluginError,
        RlvrError,
        RunError,
    )
    from rlvr_core.hookspecs import API_VERSION, hookimpl
    from rlvr_core.protocols import ComponentConfig, NoConfig, Source
    from rlvr_core.registry import Registrar
    from rlvr_core.samplers.base import SamplerBase, SamplerConfig
    from rlvr_core.tools import BadCall, Tool, ToolCall, ToolFormat, tool_format
    from rlvr_core.types import (
        Completion,
        Done,
        Draw,
        Drop,
        EvalReport,
        Extend,
        Group,
        Judged,
        Keep,
        Message,
        Observation,
        Outcome,
        Problem,
        Reply,
        SamplingParams,
        Transcript,
        Turn,
        Verdict,
    )

__version__ = "0.1.0"

__all__ = [
    "API_VERSION",
    "BadCall",
    "Completion",
    "ComponentConfig",
    "ConfigError",
    "DataError",
    "Done",
    "Draw",
    "Drop",
    "EvalReport",
    "Extend",
    "Group",
    "Judged",
    "Keep",
    "MachineError",
    "Message",
    "NoConfig",
    "Observation",
    "Outcome",
    "PluginError",
    "Problem",
    "Registrar",
    "Reply",
    "RlvrError",
    "RunError",
    "SamplerBase",
    "SamplerConfig",
    "SamplingParams",
    "Source",
    "Tool",
    "ToolCall",
    "ToolFormat",
    "Transcript",
    "Turn",
    "Verdict",
    "__version__",
    "hookimpl",
    "tool_format",
]

_HOMES = {
    "errors": ("ConfigError", "DataError", "MachineError", "PluginError", "RlvrError", "RunError"),
    "hookspecs": ("API_VERSION", "hookimpl"),
    "protocols": ("ComponentConfig", "NoConfig", "Source"),
    "registry": ("Registrar",),
    "samplers.base": ("SamplerBase", "SamplerConfig"),
    "tools": ("BadCall", "Tool", "ToolCall", "ToolFormat", "tool_format"),
    "types": (
        "Completion",
        "Done",
        "Draw",
        "Drop",
        "EvalReport",
        "Extend",
        "Group",
        "Judged",
        "Keep",
        "Message",
        "Observation",
        "Outcome",
        "Problem",
        "Reply",
        "SamplingParams",
        "Transcript",
        "Turn",
        "Verdict",
    ),
}
_HOME = {name: f"rlvr_core.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rlvr_core' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
