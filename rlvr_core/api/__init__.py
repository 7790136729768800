"""The public face of rlvr: all that a plugin imports.

What a plugin may import from the core is listed in ``__all__``; importing it loads no torch. Each
name is imported when first used, so that the import itself costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api.errors import (
        ConfigError,
        DataError,
        MachineError,
        PluginError,
        RlvrError,
        RunError,
    )
    from rlvr_core.api.hooks import API_VERSION, hookimpl
    from rlvr_core.api.protocols import ComponentConfig, NoConfig, Source
    from rlvr_core.api.sampler_base import SamplerBase, SamplerConfig
    from rlvr_core.api.tools import BadCall, Tool, ToolCall, ToolFormat, tool_format
    from rlvr_core.api.types import (
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
    from rlvr_core.host.registry import Registrar

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
    "hookimpl",
    "tool_format",
]

_HOMES = {
    "api.errors": (
        "ConfigError",
        "DataError",
        "MachineError",
        "PluginError",
        "RlvrError",
        "RunError",
    ),
    "api.hooks": ("API_VERSION", "hookimpl"),
    "api.protocols": ("ComponentConfig", "NoConfig", "Source"),
    "host.registry": ("Registrar",),
    "api.sampler_base": ("SamplerBase", "SamplerConfig"),
    "api.tools": ("BadCall", "Tool", "ToolCall", "ToolFormat", "tool_format"),
    "api.types": (
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
        raise AttributeError(f"module 'rlvr_core.api' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
