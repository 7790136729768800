"""Model folders without weights, and runs of them, for the guards prompts and completions."""

import json
from types import SimpleNamespace

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rlvr_core.api import Completion, Group, GroupsScored, Judged, Problem, Verdict
from rlvr_core.builtin.invariants.invariants import custody_of
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.samplers.epochs import Shuffle
from rlvr_core.config.model import RunConfig
from rlvr_core.data.prompts import STORED_CHOICE, Renderer
from rlvr_core.rollout.source import SingleTurn

SPECIAL = ["<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DATED = "{{ strftime_now('%d %b %Y') }}\n" + CHATML


def byte_level(eos, bos=None, *, post_eos=False, merges=()):
    """One token a byte, but for merges."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*SPECIAL, *letters, *("".join(pair) for pair in merges)]
    vocabulary = {token: index for index, token in enumerate(pieces)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(SPECIAL)
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A {eos if post_eos else ''}".strip(),
            special_tokens=[(bos, vocabulary[bos]), (eos, vocabulary[eos])],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=eos, bos_token=bos, pad_token="<pad>"
    )


def sentence_pieces():
    """Pieces as SentencePiece has them, with bytes for what it does not know; BOS before texts."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    pieces += [*"abcdefghijklmnopqrstuvwxyz0123456789+?.:[]", "\u2581a", "\u2581b"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = [("\u2581", "a"), ("\u2581", "b")]
    inner = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True)
    )
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    inner.add_special_tokens(["<unk>", "<s>", "</s>"])
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="</s>", bos_token="<s>", unk_token="<unk>"
    )


class Run:
    """A run's guards over a model folder, and its renderer.

    Args:
        folder: Where the model's files go.
        made: The tokenizer.
        template: Its chat template.
        stored: The choice that a run has stored with it.
        ends: ``eos_token_id`` of generation_config.json, by name.
        model_end: That of config.json; the tokenizer's if omitted.
        prompt: ``data.prompt``.
        problems: The data.
        more: Sections of the config.
    """

    def __init__(
        self,
        folder,
        made,
        *,
        template=None,
        stored=None,
        ends=(),
        model_end=None,
        prompt=None,
        problems=(),
        **more,
    ):
        made.chat_template = template
        made.save_pretrained(folder)
        if stored is not None:
            path = folder / "tokenizer_config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {STORED_CHOICE: stored}))
        end = made.convert_tokens_to_ids(model_end or made.eos_token)
        config = {"model_type": "qwen3", "eos_token_id": end}
        (folder / "config.json").write_text(json.dumps(config))
        if ends:
            ids = made.convert_tokens_to_ids(list(ends))
            (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        data = {"sources": ["a"], "prompt": prompt or {}}
        self.config = RunConfig.model_validate(
            {"model": {"path": str(folder)}, "data": data, "train": {"steps": 9}} | more
        )
        self.problems = {one.id: one for one in problems}
        self.renderer = Renderer(self.tokenizer, self.config.data.prompt)
        self.said = []
        self.prepared = SimpleNamespace(
            config=self.config,
            model_path=str(folder),
            problems=self.problems,
            conversations=SingleTurn(),
            sampler=Shuffle(Shuffle.Config()),
            longest_prompt=200,
            evaluations=SimpleNamespace(max_tokens=0),
            sources=[],
            losses={},
            demonstrations={},
        )
        self.files = files = ModelFiles(str(folder), self.config.model)
        self.checks = {one.id: one for one in custody_of(self.prepared, files, self.said.append)}

    def step(self, groups, step=0, version=0, only=None):
        """Pass a step's groups to the guards."""
        for name, one in self.checks.items():
            if only in (None, name):
                one.on_groups(GroupsScored(step, version, tuple(groups)))

    def ids(self, text):
        """Encode a text, special tokens in it included."""
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def completion(self, text, reason="stop", *, version=0, prompt=(9, 9), judged=None, **more):
        """A completion of these tokens, judged by their text or another one."""
        ids = self.ids(text) if isinstance(text, str) else tuple(text)
        known = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return Completion(
            tuple(prompt),
            ids,
            (-1.0,) * len(ids),
            (True,) * len(ids),
            known if judged is None else judged,
            reason,
            version,
            **more,
        )


def problem(id_="p0", prompt="2+2?", **more):
    return Problem(id_, prompt, "core/exact", {}, "toy", **more)


def group(of, *completions, version=0, parts=None):
    """A group of completions; rewards alternate."""
    members = [
        Judged(
            one, {"v": Verdict(1.0, parts=parts or {})}, float(place % 2), passed=bool(place % 2)
        )
        for place, one in enumerate(completions)
    ]
    return Group(of, tuple(members), version)
