"""What commands of plugins use of the core beside ``rlvr_core.api``; it imports nothing large.

It reads configs and run folders, makes components and prints. A plugin that needs more imports the
module that has it.
"""

from rlvr_core import __version__
from rlvr_core.config.load import load_config
from rlvr_core.config.model import ComponentRef, EnvironmentSection, ModelSection, PromptSection
from rlvr_core.config.resolve import Resolved, build, parse_options, resolve_file
from rlvr_core.data.uri import cache_folder, check_model_path, is_uri, local_path, model_path
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.plugins.loader import PluginRecord, describe
from rlvr_core.plugins.registry import Entry, kind_words
from rlvr_core.plugins.tool_formats import tool_format
from rlvr_core.record.checkpoints import BEST, COMPLETE, LATEST
from rlvr_core.record.files import lock_folder, write_atomic
from rlvr_core.record.find import find_run, list_runs
from rlvr_core.record.jsonl import parse_line, read_jsonl, whole_lines
from rlvr_core.record.rundir import RunFolder, looks_like_run
from rlvr_core.record.text import brief, printable
from rlvr_core.record.view import RunView, finite
from rlvr_core.terminal.output import print_json, print_line, print_table, quiet_libraries
from rlvr_core.verify.pool import VerifierPool, VerifierStats
from rlvr_core.verify.reward import outcome
from rlvr_core.verify.verdicts import VerifierSpec, from_plain, plain_verdict

__all__ = [
    "BEST",
    "COMPLETE",
    "LATEST",
    "ComponentRef",
    "Entry",
    "EnvironmentSection",
    "Host",
    "ModelSection",
    "PluginRecord",
    "PromptSection",
    "Resolved",
    "RunFolder",
    "RunView",
    "VerifierPool",
    "VerifierSpec",
    "VerifierStats",
    "__version__",
    "brief",
    "build",
    "cache_folder",
    "check_model_path",
    "describe",
    "find_run",
    "finite",
    "from_plain",
    "is_uri",
    "kind_words",
    "list_runs",
    "load_config",
    "load_host",
    "local_path",
    "lock_folder",
    "looks_like_run",
    "model_path",
    "outcome",
    "parse_line",
    "parse_options",
    "plain_verdict",
    "print_json",
    "print_line",
    "print_table",
    "printable",
    "quiet_libraries",
    "read_jsonl",
    "resolve_file",
    "tool_format",
    "whole_lines",
    "write_atomic",
]
