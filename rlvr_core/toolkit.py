"""Functions of the core for commands of plugins; importing it loads nothing large.

It reads configs and run folders, makes components and prints. A plugin that needs more imports the
module that has it.
"""

from rlvr_core import __version__ as __version__
from rlvr_core.config.load import load_config as load_config
from rlvr_core.config.model import ComponentRef as ComponentRef
from rlvr_core.config.model import EnvironmentSection as EnvironmentSection
from rlvr_core.config.model import ModelSection as ModelSection
from rlvr_core.config.model import PromptSection as PromptSection
from rlvr_core.config.resolve import Resolved as Resolved
from rlvr_core.config.resolve import build as build
from rlvr_core.config.resolve import parse_options as parse_options
from rlvr_core.config.resolve import resolve_file as resolve_file
from rlvr_core.data.uri import cache_folder as cache_folder
from rlvr_core.data.uri import check_model_path as check_model_path
from rlvr_core.data.uri import is_uri as is_uri
from rlvr_core.data.uri import local_path as local_path
from rlvr_core.data.uri import model_path as model_path
from rlvr_core.plugins.host import Host as Host
from rlvr_core.plugins.host import load_host as load_host
from rlvr_core.plugins.loader import PluginRecord as PluginRecord
from rlvr_core.plugins.loader import describe as describe
from rlvr_core.plugins.registry import Entry as Entry
from rlvr_core.plugins.registry import kind_words as kind_words
from rlvr_core.plugins.tool_formats import tool_format as tool_format
from rlvr_core.record.checkpoints import BEST as BEST
from rlvr_core.record.checkpoints import COMPLETE as COMPLETE
from rlvr_core.record.checkpoints import LATEST as LATEST
from rlvr_core.record.files import lock_folder as lock_folder
from rlvr_core.record.files import write_atomic as write_atomic
from rlvr_core.record.find import find_run as find_run
from rlvr_core.record.find import list_runs as list_runs
from rlvr_core.record.jsonl import parse_line as parse_line
from rlvr_core.record.jsonl import read_jsonl as read_jsonl
from rlvr_core.record.jsonl import whole_lines as whole_lines
from rlvr_core.record.rundir import RunFolder as RunFolder
from rlvr_core.record.rundir import looks_like_run as looks_like_run
from rlvr_core.record.text import brief as brief
from rlvr_core.record.text import printable as printable
from rlvr_core.record.view import RunView as RunView
from rlvr_core.record.view import finite as finite
from rlvr_core.terminal.output import print_json as print_json
from rlvr_core.terminal.output import print_line as print_line
from rlvr_core.terminal.output import print_table as print_table
from rlvr_core.terminal.output import quiet_libraries as quiet_libraries
from rlvr_core.verify.pool import VerifierPool as VerifierPool
from rlvr_core.verify.pool import VerifierStats as VerifierStats
from rlvr_core.verify.reward import outcome as outcome
from rlvr_core.verify.verdicts import VerifierSpec as VerifierSpec
from rlvr_core.verify.verdicts import from_plain as from_plain
from rlvr_core.verify.verdicts import plain_verdict as plain_verdict
