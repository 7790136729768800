"""Tiny models for vLLM, engines on them, and the log-probs that transformers says."""

import contextlib

import torch

from rlvr_core.api import EngineContext, GenerationRequest, SamplingParams
from rlvr_core.engines.vllm.engine import VllmEngine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MAX_LEN = 192
LONG_PROMPT = tuple(range(10, 10 + 80))  # two and a half blocks of 32
EOS = 1


def make_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        ["what is 3 + 4?\n\nthe answer is seven.\n\n"] * 3,
        trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=["<pad>", "<eos>", "<turn>"],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        additional_special_tokens=["<turn>"],
    )


def qwen3(seed, *, hidden, mlp, layers, heads, **options):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        hidden_size=hidden,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=32,
        bos_token_id=None,
        pad_token_id=0,
        **options,
    )
    return Qwen3ForCausalLM(config).eval()


def make_model(tokenizer, *, tied, seed):
    """A random Qwen3 of 0.8M parameters whose distributions are far from uniform."""
    sizes = {"hidden": 128, "mlp": 384, "layers": 4, "heads": 4, "vocab_size": len(tokenizer)}
    sizes |= {"max_position_embeddings": 512, "initializer_range": 0.1, "eos_token_id": EOS}
    return qwen3(seed, tie_word_embeddings=tied, **sizes).to(DEVICE)


def word_tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {"<eos>": 0} | {f"w{number}": number for number in range(1, 190)}
    inner = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>")


def small_model(seed, *, tied=True):
    """A Qwen3 whose vocabulary vLLM pads, and whose q, k, v and gate, up it fuses."""
    sizes = {"hidden": 64, "mlp": 96, "layers": 2, "heads": 2, "vocab_size": 190}
    sizes |= {"max_position_embeddings": 256, "initializer_range": 0.15, "eos_token_id": 0}
    return qwen3(seed, tie_word_embeddings=tied, **sizes)


@contextlib.contextmanager
def running(folder, *, tied=True, dtype=torch.float32, **options):
    """An engine that has loaded model A from disk, and A."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, tied=tied, seed=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    engine = VllmEngine(VllmEngine.Config(**{"kv_cache_mb": 64, **options}))
    engine.start(EngineContext(str(folder), model, tokenizer, dtype, MAX_LEN, 7))
    try:
        yield engine, model, tokenizer
    finally:
        engine.close()


def sample(engine, prompt=LONG_PROMPT, seeds=range(4), **params):
    params = SamplingParams(**{"max_tokens": 24, **params})
    future = engine.submit(GenerationRequest("r", tuple(prompt), params, tuple(seeds)))
    engine.drain(120)
    return future.result(0)


@torch.no_grad()
def oracle(model, prompt, token_ids, temperature=1.0):
    ids = torch.tensor([[*prompt, *token_ids]], device=DEVICE)
    logits = model(ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0].cpu()


def distance(engine, model, *, temperature=1.0, prompt=LONG_PROMPT):
    """Largest |engine - oracle| over the sampled tokens."""
    differences = [
        oracle(model, prompt, answer.token_ids, temperature) - torch.tensor(answer.logprobs)
        for answer in sample(engine, prompt, temperature=temperature)
    ]
    return torch.cat(differences).abs().max().item()
