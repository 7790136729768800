"""Loads tasks of lm-evaluation-harness and builds their requests."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_core.api import (
    Complaint,
    ConfigError,
    DataError,
    Json,
    MachineError,
    RlvrError,
    SamplingParams,
    one_line,
)

if TYPE_CHECKING:
    from rlvr_lab.lm_eval.task import LmEval

CHAT = "\x00chat"
"""Prefix of a context that is a chat, to be rendered once the tokenizer is loaded."""
BUDGETS = {"gsm8k": 1024, "hendrycks_math": 2048, "minerva_math": 2048, "ifeval": 4096}
"""Minimum tokens for an answer, by prefix of the task's name, even if its YAML has fewer."""
DEFAULT_BUDGET = 1024
"""Tokens without a value in YAML. The harness's own 256 truncate 13% of GSM8K answers."""
_CAPS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_KNOWN = {*_CAPS, "until", "do_sample", "temperature", "top_p", "top_k", "num_beams"}


@dataclass(slots=True)
class Document:
    """One document of one task, and its requests.

    Attributes:
        id: ``task/position``, position as the harness counts.
        task: The harness's task object.
        instances: Its requests.
        sampling: Sampling parameters of the answer; None if given texts are scored.
    """

    id: str
    task: Any
    instances: list[Any]
    sampling: SamplingParams | None

    @property
    def context(self) -> str:
        """The context of the first request; empty if whole texts are scored."""
        arguments = self.instances[0].args
        return str(arguments[0]) if len(arguments) > 1 else ""

    @property
    def shown(self) -> str:
        """The context, or the scored text if there is none."""
        return self.context if self.context.strip() else str(self.instances[0].args[-1])


@dataclass(slots=True)
class Loaded:
    """The loaded task, or group of tasks.

    Attributes:
        version: Version of the harness.
        tasks: Tasks by name.
        groups: Groups by name.
        documents: Documents of all tasks by id, in order.
        repeats: Number of answers to each document.
    """

    version: str
    tasks: dict[str, Any]
    groups: dict[str, Any]
    documents: dict[str, Document]
    repeats: int


def load(config: LmEval.Config) -> Loaded:
    """Load the task, its data, and build every request.

    Raises:
        ConfigError: If the task is unknown, or does not support the options.
        DataError: If its data or its code fail.
        MachineError: If lm_eval is missing or broken.
    """
    version = _import()
    loaded = _find(config)
    tasks: dict[str, Any] = dict(sorted(loaded["tasks"].items()))
    _check(tasks, config)
    for task in tasks.values():
        _set_up(task, config)
    repeats = {int(task.config.repeats or 1) for task in tasks.values()}
    if len(repeats) > 1:
        raise ConfigError(
            f"lm_eval task '{config.task}' holds tasks that ask {sorted(repeats)} times",
            remedy="evaluate them one by one",
        )
    documents: dict[str, Document] = {}
    with _quiet(), _seeded():
        for name, task in tasks.items():
            try:
                documents |= {document.id: document for document in _documents(name, task, config)}
            except RlvrError:
                raise
            except Exception as error:
                raise _failed(name, "its requests could not be built", error) from error
    return Loaded(version, tasks, dict(loaded.get("groups", {})), documents, repeats.pop())


def digest(document: Document) -> str:
    """Return the hash of a document's requests and of its reference answer."""
    target = document.task.doc_to_target(document.instances[0].doc)
    requests = [[instance.request_type, list(instance.args)] for instance in document.instances]
    text = json.dumps([requests, target], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def identity(task: Any) -> dict[str, Json]:
    """Return version and a hash of the definition of a task."""
    # paths of data differ between machines
    beside = {"metadata", "dataset_kwargs", "dataset_path"}
    definition = {key: value for key, value in task.dump_config().items() if key not in beside}
    # a value that JSON lacks is named by its type, without its address in memory
    text = json.dumps(definition, sort_keys=True, default=lambda value: type(value).__qualname__)
    return {
        "version": str(task.VERSION),
        "num_fewshot": task.config.num_fewshot,
        "definition": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def _import() -> str:
    try:
        version = metadata.version("lm_eval")
        import lm_eval.tasks
    except Exception as error:  # whatever a broken dependency raises
        missing = isinstance(error, metadata.PackageNotFoundError)
        raise MachineError(
            "eval task 'lm_eval' needs lm-evaluation-harness, which is not installed"
            if missing
            else f"lm_eval cannot be imported: {type(error).__name__}: {error}",
            remedy="pip install 'rlvr-core[lm-eval]'",
        ) from error
    assert lm_eval.tasks
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it warns about intended settings
    return version


def _find(config: LmEval.Config) -> Mapping[str, Any]:
    """Return the task objects; the harness's own 14,000 files are only read if necessary."""
    from lm_eval.tasks import TaskManager

    path = config.include_path
    if path is not None and not Path(path).is_dir():
        raise ConfigError(f"include_path '{path}' is no folder", where="lm_eval")
    with _quiet(), _seeded():
        manager = TaskManager(include_path=path, include_defaults=False) if path else None
        if manager is None or config.task not in manager.all_tasks:
            manager = TaskManager(include_path=path)
        if config.task not in manager.all_tasks:
            raise ConfigError(
                f"lm_eval has no task '{config.task}'",
                remedy="list them: lm_eval ls tasks; a folder of your own: include_path",
            )
        try:
            tasks: Mapping[str, Any] = manager.load([config.task])
        except Exception as error:
            raise _failed(config.task, "it could not be loaded", error) from error
    return tasks


def _failed(name: str, what: str, error: Exception) -> DataError:
    return DataError(
        f"lm_eval task '{name}': {what}: {one_line(error)}",
        remedy="a data set of the hub must be in the cache where there is no network",
    )


def _check(tasks: Mapping[str, Any], config: LmEval.Config) -> None:
    """Refuse what cannot be asked as the task means it; all faults at once."""
    complaints: list[Complaint] = []
    for name, task in tasks.items():
        if getattr(task, "MULTIMODAL", False):
            complaints.append(Complaint(f"lm_eval task '{name}' is about images or sound"))
        if getattr(task, "UNSAFE_CODE", False):
            complaints.append(
                Complaint(
                    f"lm_eval task '{name}' runs code that the model wrote, without a sandbox",
                    remedy=("take a task of rlvr-code, such as code/humaneval",),
                )
            )
        if config.num_fewshot and task.config.num_fewshot == 0:
            what = f"lm_eval task '{name}' is defined without examples, which the harness keeps"
            complaints.append(Complaint(what, remedy=("leave num_fewshot out",)))
        unknown = sorted((task.config.generation_kwargs or {}).keys() - _KNOWN)
        beams = (task.config.generation_kwargs or {}).get("num_beams", 1) != 1
        if task.OUTPUT_TYPE == "generate_until" and (unknown or beams):
            what = ", ".join(unknown or ["num_beams"])
            complaints.append(
                Complaint(f"lm_eval task '{name}' generates with {what}, which no engine here has")
            )
    if complaints:
        raise ConfigError.collect(complaints)


def _set_up(task: Any, config: LmEval.Config) -> None:
    """Few-shot examples as ``simple_evaluate`` sets them."""
    if config.num_fewshot is not None:
        task.set_config(key="num_fewshot", value=config.num_fewshot)
    elif task.config.num_fewshot is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=config.fewshot_seed)


def _documents(name: str, task: Any, config: LmEval.Config) -> Iterator[Document]:
    task.build_all_requests(
        limit=config.limit,
        apply_chat_template=config.chat,
        fewshot_as_multiturn=config.chat,
        chat_template=_as_chat if config.chat else None,
    )
    by_id: dict[int, list[Any]] = {}
    for instance in task.instances:
        by_id.setdefault(instance.doc_id, []).append(instance)
    for position, instances in by_id.items():
        instances.sort(key=lambda instance: instance.idx)
        kinds = {instance.request_type for instance in instances}
        generated = kinds == {"generate_until"} and len(instances) == 1
        if not generated and not kinds <= {"loglikelihood", "loglikelihood_rolling"}:
            raise ConfigError(
                f"lm_eval task '{name}' asks {len(instances)} requests of kind "
                f"{', '.join(sorted(kinds))} about one document, which cannot be recorded",
                remedy="one generated answer, or texts to score",
            )
        sampling = _sampling(name, instances[0].args[1], config) if generated else None
        yield Document(f"{name}/{position}", task, instances, sampling)


def _as_chat(history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
    return CHAT + json.dumps([history, add_generation_prompt])


def _sampling(name: str, arguments: Mapping[str, Any], config: LmEval.Config) -> SamplingParams:
    """Convert the harness's generation arguments to sampling parameters."""
    until = arguments.get("until") or []
    until = [until] if isinstance(until, str) else list(until)
    yaml_cap = next((arguments[key] for key in _CAPS if arguments.get(key) is not None), None)
    family = next((n for start, n in BUDGETS.items() if name.startswith(start)), 0)
    cap = config.max_tokens or max(int(yaml_cap or 0), family) or DEFAULT_BUDGET
    greedy = arguments.get("do_sample") is False
    return SamplingParams(
        temperature=0.0 if greedy else float(arguments.get("temperature") or 0.0),
        top_p=1.0 if greedy else float(arguments.get("top_p", 1.0)),
        top_k=0 if greedy else int(arguments.get("top_k") or 0),
        max_tokens=cap,
        stop=tuple(dict.fromkeys(stop for stop in until if stop)),
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The harness draws progress bars of its own."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """The global random states as ``simple_evaluate`` seeds them; then as they were."""
    python, numeric = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(1234)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numeric)
