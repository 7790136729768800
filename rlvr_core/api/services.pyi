"""What the kernel does for plugins: rendering, verifying, reading data, files of a run.

Names here are promised like those of ``rlvr_core.api``, but may change in a minor version. Each is
imported from its home when it is first used; the kernel itself never imports this module."""

from rlvr_core.builtin.datasets.hub import hub_rows as hub_rows
from rlvr_core.builtin.environments.questions import Questions as Questions
from rlvr_core.builtin.environments.questions import response as response
from rlvr_core.builtin.evals.config import Asked as Asked
from rlvr_core.builtin.evals.config import read_eval_config as read_eval_config
from rlvr_core.builtin.evals.model_ref import find_model as find_model
from rlvr_core.builtin.jobs.again import fetch_newest as fetch_newest
from rlvr_core.builtin.jobs.again import fetch_results as fetch_results
from rlvr_core.builtin.jobs.again import send_results as send_results
from rlvr_core.builtin.jobs.again import unsent as unsent
from rlvr_core.builtin.jobs.jobs import Job as Job
from rlvr_core.builtin.jobs.jobs import JobBook as JobBook
from rlvr_core.builtin.jobs.secrets import secrets_in as secrets_in
from rlvr_core.builtin.jobs.secrets import secrets_in_words as secrets_in_words
from rlvr_core.builtin.jobs.staging import Layout as Layout
from rlvr_core.builtin.jobs.staging import overrides as overrides
from rlvr_core.builtin.lora.export import is_adapter as is_adapter
from rlvr_core.builtin.lora.export import write_merged as write_merged
from rlvr_core.config.resolve import Resolved as Resolved
from rlvr_core.data.json_rows import MAX_INT_DIGITS as MAX_INT_DIGITS
from rlvr_core.data.json_rows import read_rows as read_rows
from rlvr_core.data.uri import cache_folder as cache_folder
from rlvr_core.data.uri import local_path as local_path
from rlvr_core.engines.sync import PROBE_TOKENS as PROBE_TOKENS
from rlvr_core.engines.sync import check_probe as check_probe
from rlvr_core.engines.sync import probe_prompt as probe_prompt
from rlvr_core.engines.sync import shared_prefix as shared_prefix
from rlvr_core.engines.sync import source_logprobs as source_logprobs
from rlvr_core.engines.sync import trainer_logprobs as trainer_logprobs
from rlvr_core.host.host import load_host as load_host
from rlvr_core.parallel.ranks import LostError as LostError
from rlvr_core.parallel.ranks import Ranks as Ranks
from rlvr_core.parallel.ranks import apart as apart
from rlvr_core.parallel.ranks import fault_of as fault_of
from rlvr_core.rollout.collect import Answered as Answered
from rlvr_core.rollout.collect import Generator as Generator
from rlvr_core.rollout.collect import Judgement as Judgement
from rlvr_core.rollout.collect import joined as joined
from rlvr_core.rollout.collect import outcome_of as outcome_of
from rlvr_core.rollout.replay import Reading as Reading
from rlvr_core.rollout.replay import ReplayBuffer as ReplayBuffer
from rlvr_core.rollout.replay import member_of as member_of
from rlvr_core.rollout.single_turn import conversations_of as conversations_of
from rlvr_core.rollout.source import SourceParts as SourceParts
from rlvr_core.step.optim import AdamWConfig as AdamWConfig
