"""LoRA with peft: adds adapters to the policy, saves and loads them as peft files, merges them.

The adapters are layers inside the policy, which stays the Hugging Face model it is. ``policy`` is
the adapter that is trained; ``reference`` is a second one, used if the reference model is synced.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from rlvr_core.api import ConfigError, MachineError, one_line
from rlvr_core.lora.adapter import (
    CONFIG,
    POLICY,
    WEIGHTS,
    adapter_of,
    is_adapted,
    matrices,
    name_in_file,
    write_adapter,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rlvr_core.config.model import LoraSection

REFERENCE = "reference"
BASE = "base.json"

_BASES: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def check_installed() -> None:
    """Raise early if peft is not usable.

    Raises:
        MachineError: If it cannot be imported.
    """
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise MachineError(
            f"LoRA needs peft, which does not import: {error}",
            where="model.lora",
            remedy="pip install 'rlvr-core[lora]'",
        ) from error


def attach(
    model: PreTrainedModel,
    section: LoraSection,
    *,
    seed: int,
    compute: torch.dtype,
    path: str,
    revision: str | None,
    where: str = "model.lora.target_modules",
) -> None:
    """Add an adapter to a model, in place, and freeze all other weights.

    Initially the adapter changes nothing: its ``lora_B`` is 0 (Hu et al. 2021, section 4.1).

    Args:
        model: The policy, in float32.
        section: Rank and other settings of the adapter.
        seed: Seed of the initial ``lora_A``.
        compute: Dtype of the frozen weights; the adapter is float32.
        path: Folder or Hub id of the model, for the adapter's file.
        revision: Hub revision of the model.
        where: Where ``target_modules`` was written.

    Raises:
        ConfigError: If ``target_modules`` does not fit the model.
    """
    import peft

    folder = Path(path).expanduser()
    _BASES[model] = _fingerprint(model)
    config = peft.LoraConfig(
        r=section.rank,
        lora_alpha=section.alpha,
        lora_dropout=section.dropout,
        target_modules=section.target_modules,
        task_type="CAUSAL_LM",
        base_model_name_or_path=str(folder.resolve()) if folder.is_dir() else path,
        revision=revision,
    )
    linear = _linear_layers(model)
    if section.target_modules != "all-linear":
        _check_targets(section.target_modules, linear, where)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")  # peft sets it
        torch.default_generator.manual_seed(seed)
        peft.inject_adapter_in_model(config, model, adapter_name=POLICY)
    config.target_modules = _shortest(model, linear)
    config.inference_mode = True  # what peft should do when loading it
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(compute)
    _rest(model)


def attach_reference(model: Any) -> None:
    """Add a second adapter, equal to the first, for a reference that is synced with the policy."""
    import peft

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Already found a `peft_config`")
        config = peft.LoraConfig(**model.peft_config[POLICY].to_dict())
        peft.inject_adapter_in_model(config, model, adapter_name=REFERENCE)
    for layer in layers(model):
        layer.set_adapter(POLICY)
    _rest(model)
    with torch.no_grad():
        for _, theirs, policy in pairs(model):
            theirs.copy_(policy)


def layers(model: nn.Module) -> list[Any]:
    """Return peft's layers in the model."""
    return [module for module in model.modules() if is_adapted(module)]


def pairs(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, nn.Parameter]]:
    """Yield name, reference matrix and policy matrix of each pair."""
    policy = matrices(model)
    for name, theirs in matrices(model, REFERENCE).items():
        yield name, theirs, policy[name.replace(f".{REFERENCE}.", f".{POLICY}.")]


@contextlib.contextmanager
def base(model: nn.Module) -> Iterator[None]:
    """Disable the adapters in the block. No autograd graph of the policy may be alive."""
    adapted = layers(model)
    with _trained_as_before(model):
        for layer in adapted:
            layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in adapted:
            layer.enable_adapters(True)


@contextlib.contextmanager
def reference(model: nn.Module) -> Iterator[None]:
    """Use the reference's adapter in the block. No autograd graph of the policy may be alive."""
    adapted = layers(model)
    with _trained_as_before(model):
        for layer in adapted:
            layer.set_adapter(REFERENCE, inference_mode=True)
    try:
        yield
    finally:
        for layer in adapted:
            layer.set_adapter(POLICY)


@contextlib.contextmanager
def _trained_as_before(model: nn.Module) -> Iterator[None]:
    """Undo what peft does to ``requires_grad`` in the block.

    FSDP asks at its first pass, which may be the reference's, in what dtype gradients will come.
    """
    trained = [matrix for matrix in matrices(model).values() if matrix.requires_grad]
    yield
    for matrix in trained:
        matrix.requires_grad_(True)


@contextlib.contextmanager
def dropout(model: nn.Module, *key: int) -> Iterator[None]:
    """Enable the adapter's dropout in the block, with random numbers determined by ``key``.

    Args:
        model: The policy; nothing happens if it has no such dropout.
        key: Seed of the run, step and process, so that a resumed run draws the same numbers.
    """
    policy = [layer.lora_dropout[POLICY] for layer in layers(model)]
    modules = [module for module in policy if isinstance(module, nn.Dropout)]
    if not modules:
        yield
        return
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=8, person=b"rlvr-dropout")
    with torch.random.fork_rng():
        torch.manual_seed(int.from_bytes(digest.digest(), "big") >> 1)
        for module in modules:
            module.training = True
        try:
            yield
        finally:
            for module in modules:
                module.training = False


def write(folder: Path, model: Any, tensors: dict[str, Tensor]) -> None:
    """Write an adapter as peft loads it, with a fingerprint of the weights it was trained on.

    Args:
        folder: An existing folder.
        model: The policy.
        tensors: Its full ``matrices``.
    """
    write_adapter(folder, adapter_of(model, tensors))
    text = json.dumps({"fingerprint": _BASES[model]}, indent=1)
    (folder / BASE).write_text(text + "\n", encoding="utf-8")


def read(folder: Path, model: nn.Module) -> dict[str, Tensor]:
    """Read the matrices that ``write`` wrote, by their names in the model where it has them.

    Raises:
        ValueError: If the adapter was trained on other weights.
    """
    from safetensors.torch import load_file

    check_base(folder, _BASES[model])
    saved = load_file(folder / WEIGHTS)
    names = {name_in_file(name): name for name in matrices(model)}
    return {names.get(stored, stored): tensor for stored, tensor in saved.items()}


def check_base(folder: Path, fingerprint: str) -> None:
    """Refuse a base model other than the one the adapter in ``folder`` was trained on.

    Raises:
        ValueError: If it differs.
    """
    path = folder / BASE
    if not path.is_file():
        return  # an adapter made by another program has no fingerprint
    if json.loads(path.read_text(encoding="utf-8"))["fingerprint"] != fingerprint:
        raise ValueError(
            f"the adapter in {folder} was trained on other weights than those that are now at "
            f"its base model's path"
        )


def merged(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """Load an adapter's base model with the adapter merged into it, in float32.

    Args:
        folder: An adapter as peft saves it.
        trust_remote_code: Whether code that comes with the base model may run.

    Raises:
        MachineError: If peft or the base model is missing, the adapter cannot be loaded, or the
            base model is not the one it was trained on.
    """
    check_installed()
    if not (folder / WEIGHTS).is_file():
        # peft would unpickle an adapter_model.bin
        raise MachineError(f"there is no {WEIGHTS}", where=str(folder))
    import peft

    from rlvr_core.config.model import ModelSection
    from rlvr_core.data.uri import check_model_path
    from rlvr_core.step.model import load_policy

    try:
        config = peft.PeftConfig.from_pretrained(str(folder))
    except Exception as error:
        raise _unloadable(folder, error) from error
    path = config.base_model_name_or_path
    if not path:
        raise MachineError(f"{CONFIG} does not name its base model", where=str(folder))
    check_model_path(path)
    section = ModelSection(path=path, revision=config.revision, trust_remote_code=trust_remote_code)
    model: Any = load_policy(path, section, torch.device("cpu"))
    try:
        check_base(folder, _fingerprint(model))
        wrapped: Any = peft.PeftModel.from_pretrained(model, str(folder))
        whole: PreTrainedModel = wrapped.merge_and_unload(safe_merge=True)
    except Exception as error:
        raise _unloadable(folder, error) from error
    return whole


def _rest(model: nn.Module) -> None:
    """Disable dropout in new layers, and leave the flags of all others unchanged."""
    for layer in layers(model):
        layer.train(False)


def _unloadable(folder: Path, error: Exception) -> MachineError:
    return MachineError(f"the adapter cannot be loaded: {one_line(error)}", where=str(folder))


def _fingerprint(model: nn.Module) -> str:
    """Return a fingerprint of a model's weights: names, shapes and 256 numbers of each tensor."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        digest.update(json.dumps([name, list(parameter.shape)]).encode())
        # integer arithmetic: floating-point ranges may differ from machine to machine
        place = torch.arange(min(256, len(flat)), device=flat.device) * max(1, len(flat) // 256)
        digest.update(flat[place].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def _linear_layers(model: Any) -> list[str]:
    """Return the names of adaptable layers: every linear layer except the LM head."""
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | Conv1D) and module is not head
    ]


def _check_targets(targets: list[str], linear: list[str], where: str) -> None:
    unknown = [
        target
        for target in targets
        if not any(name == target or name.endswith(f".{target}") for name in linear)
    ]
    if unknown:
        kinds = list(dict.fromkeys(name.rpartition(".")[2] for name in linear))
        names = [*kinds, *linear]
        close = [
            name for target in unknown for name in difflib.get_close_matches(target, names, n=2)
        ]
        remedy = [f"it has: {', '.join(kinds)}"]
        if close:
            remedy.insert(0, f"did you mean: {', '.join(dict.fromkeys(close))}?")
        raise ConfigError(
            f"the model has no linear layer called {', '.join(map(repr, unknown))} that an "
            f"adapter can be put beside",
            where=where,
            remedy=remedy,
        )


def _shortest(model: nn.Module, linear: list[str]) -> list[str]:
    """Return names for the adapted layers: the last parts of their names, if unambiguous."""
    adapted = {name for name, module in model.named_modules() if is_adapted(module)}
    kinds = {name.rpartition(".")[2] for name in adapted}
    meant = {name for name in linear if name.rpartition(".")[2] in kinds}
    return sorted(kinds if meant == adapted else adapted)
