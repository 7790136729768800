from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_core.testing.random_model import save_random_model


def test_every_text_has_a_token_per_byte_and_a_seed_its_weights(tmp_path):
    folders = [save_random_model(tmp_path / str(i), seed=i // 2, head_dim=8) for i in range(3)]
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    text = "What is 37+48?\n Größe \N{GRINNING FACE}"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text
    first, same, other = (AutoModelForCausalLM.from_pretrained(folder) for folder in folders)
    assert first.config.head_dim == 8
    assert first.config.vocab_size == len(tokenizer) == 258
    assert tokenizer.eos_token_id == first.config.eos_token_id == 256
    weights = [model.lm_head.weight for model in (first, same, other)]
    assert weights[0].equal(weights[1])
    assert not weights[0].equal(weights[2])
