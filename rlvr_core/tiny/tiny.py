"""Tiny models that really learn, made on the spot: for demonstrations, tests and benchmarks.

A dataset loader that is a ``Demonstrator`` shows worked answers; a fresh Qwen3 with a fresh
tokenizer is trained on them just long enough to hold the right behaviour at low probability.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging as std_logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import parse_qsl

from rlvr_core.api import TINY, ConfigError, Demonstrator, MachineError, Problem, config_class
from rlvr_core.record.files import sync_file, sync_folder
from rlvr_core.tiny.tiny_warm import BATCH, PEAK_LR, SHAPES, Progress, Size

if TYPE_CHECKING:
    from rlvr_core.plugins.host import Host

STEPS = 600
VOCAB_SIZE = 420
_TOKENIZER_PAIRS = 4000
_RECIPE = 2
"""Incremented when the same demonstrations would give another model; part of the cache's names."""


@dataclass(frozen=True, slots=True)
class TinyReport:
    """The result of ``make_tiny_model``.

    Attributes:
        path: The model's folder.
        size: Its nominal size.
        parameters: Its parameters, the tied embedding once.
        vocab_size: Tokens of its tokenizer.
        seed: What everything random derived from.
        steps: Warm-start steps.
        loss: Loss of the last one, in nats per token.
        seconds: Wall time of it all.
    """

    path: str
    size: Size
    parameters: int
    vocab_size: int
    seed: int
    steps: int
    loss: float
    seconds: float


def make_tiny_model(
    out: Path,
    demonstrations: Demonstrator,
    *,
    seed: int,
    size: Size = "0.2M",
    steps: int = STEPS,
    replace: bool = False,
    progress: Progress | None = None,
) -> TinyReport:
    """Make a tiny model and save it as a Hugging Face folder.

    The same arguments give the same bytes on the same machine. The folder appears whole or not
    at all.

    Args:
        out: The folder to make.
        demonstrations: What to learn from; see ``Demonstrator``.
        seed: Of the initial weights and of the demonstrations.
        size: About how many parameters.
        steps: Warm-start steps of 32 demonstrations.
        replace: Replace a model that lies at ``out``.
        progress: Called after each step with (done, all, loss).

    Raises:
        ConfigError: If ``out`` exists and ``replace`` is off, or is no model's folder.
        MachineError: If it cannot be written.
    """
    _check_free(out, replace)
    import torch
    from transformers import GenerationConfig

    from rlvr_core.tiny.tiny_tokenizer import train_tokenizer

    start = time.perf_counter()
    pairs = [
        (_raw(problem), answer)
        for problem, answer in demonstrations.demonstrations(steps * BATCH, seed)
    ]
    texts = [text for pair in pairs[:_TOKENIZER_PAIRS] for text in pair]
    tokenizer = train_tokenizer(texts, VOCAB_SIZE)
    with torch.random.fork_rng(devices=[]), _threads_for(size):
        torch.manual_seed(seed)
        from rlvr_core.tiny.tiny_warm import batches_of, new_model, warm_start

        model = new_model(size, tokenizer)
        batches = batches_of(tokenizer, pairs, seed)
        loss = warm_start(model, batches, peak_lr=PEAK_LR[size], progress=progress)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    with _whole_folder(out) as folder, _quiet():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return TinyReport(
        path=str(out),
        size=size,
        parameters=model.num_parameters(),
        vocab_size=len(tokenizer),
        seed=seed,
        steps=steps,
        loss=loss,
        seconds=time.perf_counter() - start,
    )


def demonstrator(host: Host, task: str, where: str = "") -> Demonstrator:
    """The dataset of this name, if it can demonstrate.

    Raises:
        ConfigError: If there is no such dataset, or it cannot; names those that can.
        PluginError: If its plugin is missing or broken.
    """
    entry = host.entry("dataset", task, where)
    component = entry.load()
    if issubclass(component, Demonstrator):
        loader: Demonstrator = component(config_class(component)())
        return loader
    able = [other.name for other in host.registry.of("dataset") if _demonstrates(other)]
    raise ConfigError(
        f"dataset '{entry.name}' shows no worked answers to warm a tiny model up with",
        where=where,
        remedy=f"datasets that do: {', '.join(able) or 'none'}",
    )


def resolve_tiny(path: str, host: Host, say: Callable[[str], None] | None = None) -> Path:
    """The folder of a model written ``tiny:TASK`` or ``tiny:TASK?seed=3&size=0.8M``.

    It is made once and kept in the cache, ``$RLVR_CACHE`` or ``~/.cache/rlvr``. Two processes
    that want it at once make it once; one that is killed half way leaves nothing that counts.

    Args:
        path: The model reference.
        host: Where to look the task up.
        say: Told what is being made; standard error when left out.

    Raises:
        ConfigError: If the reference is wrong.
        MachineError: If the cache cannot be written.
    """
    say = say or _to_stderr
    task, seed, size = _parse(path)
    where = f"model.path: {path}"
    source = demonstrator(host, task, where)
    full_name = host.entry("dataset", task, where).name.replace("/", "-")
    folder = _cache() / "tiny"
    name = f"{full_name}-{size}-seed{seed}-{_digest(source, seed, size)}"
    out = folder / name
    if out.exists():
        return out
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder / f"{name}.lock", say):
        if not out.exists():
            for half_done in folder.glob(f".{name}.*"):
                shutil.rmtree(half_done, ignore_errors=True)
            say(f"making {path} ({size} parameters, {STEPS} warm-start steps; once)")
            report = make_tiny_model(out, source, seed=seed, size=size, steps=STEPS)
            say(f"made {path} in {report.seconds:.0f} s: {out}")
    return out


def _parse(path: str) -> tuple[str, int, Size]:
    """Task, seed and size of a ``tiny:`` reference."""
    task, _, query = path.removeprefix(TINY).partition("?")
    where = f"model.path: {path}"
    options = dict(parse_qsl(query, keep_blank_values=True))
    example = f"write it like {TINY}math/arithmetic?seed=3&size=0.8M"
    if not task:
        raise ConfigError("a tiny model needs a task", where=where, remedy=example)
    if wrong := sorted(options.keys() - {"seed", "size"}):
        raise ConfigError(f"a tiny model has no option '{wrong[0]}'", where=where, remedy=example)
    seed, size = options.get("seed", "0"), options.get("size", "0.2M")
    if not (seed.isascii() and seed.isdigit() and len(seed) < 16):
        raise ConfigError(f"seed {seed!r} is not a whole number", where=where, remedy=example)
    for known in get_args(Size):
        if size == known:
            return task, int(seed), known
    sizes = ", ".join(SHAPES)
    raise ConfigError(f"there is no size {size!r}", where=where, remedy=f"sizes: {sizes}")


def _digest(source: Demonstrator, seed: int, size: Size) -> str:
    """Changes when the recipe or what is demonstrated does."""
    shown = [[_raw(p), answer] for p, answer in islice(source.demonstrations(64, seed), 64)]
    recipe = [_RECIPE, asdict(SHAPES[size]), PEAK_LR[size], STEPS, BATCH, VOCAB_SIZE, shown]
    return hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:8]


def _raw(problem: Problem) -> str:
    if isinstance(problem.prompt, str):
        return problem.prompt
    raise ConfigError(
        f"problem {problem.id!r} is a chat: a tiny model has no chat template",
        remedy="demonstrate with plain text prompts",
    )


def _demonstrates(entry: Any) -> bool:
    try:
        return issubclass(entry.load(), Demonstrator)
    except Exception:  # another plugin's fault is not what is asked about
        return False


def _cache() -> Path:
    from rlvr_core.data.uri import cache_folder

    given = os.environ.get("RLVR_CACHE")
    return Path(given).expanduser() if given else cache_folder()


def _to_stderr(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201


def _check_free(out: Path, replace: bool) -> None:
    if not out.exists() and not out.is_symlink():
        return
    if not replace:
        raise ConfigError("it exists already", where=str(out), remedy="choose another folder, "
                          "or replace it with --force")  # fmt: skip
    is_model = out.is_dir() and not out.is_symlink() and (out / "config.json").is_file()
    if not is_model and not (out.is_dir() and not any(out.iterdir())):
        raise ConfigError(
            "it is not a model's folder, so it is not replaced",
            where=str(out),
            remedy="choose another folder",
        )


@contextlib.contextmanager
def _threads_for(size: Size) -> Iterator[None]:
    """One thread where more gain little, so that the bytes do not depend on their number."""
    import torch

    before = torch.get_num_threads()
    if size != "10M":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_error(record: std_logging.LogRecord) -> bool:
    return record.levelno >= std_logging.ERROR


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from drawing a bar for a file of a megabyte.

    Where DeepSpeed is installed, saving a model imports it, and it logs warnings to standard
    output; its errors stay.
    """
    from transformers.utils import logging

    # a filter, because the import sets the logger's level anew
    std_logging.getLogger("DeepSpeed").addFilter(_is_error)
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _whole_folder(out: Path) -> Iterator[Path]:
    """A temporary folder beside ``out`` that takes its name when all of it is on disk."""
    with _writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        try:
            yield temporary
            temporary.chmod(0o755)
            for path in [*temporary.iterdir(), temporary]:
                sync_file(path)
            if out.exists():
                shutil.rmtree(out)
            temporary.rename(out)
            sync_folder(out.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise MachineError(f"cannot write the tiny model: {reason}", where=str(path)) from error


@contextlib.contextmanager
def _only_one(lock: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock that the system takes back from a process that dies."""
    import fcntl

    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that is making this model")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
