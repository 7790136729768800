"""How many tokens a model was made for, with a scaled RoPE or without."""

import pytest
from transformers import GPT2Config, Qwen3Config

from rlvr_core.config.model import ModelSection
from rlvr_core.step.model import max_positions


@pytest.mark.parametrize(
    ("rope", "positions"),
    [
        ({"rope_type": "default"}, 32_768),
        # Qwen's cards: factor 4 for 131,072 tokens, max_position_embeddings left as it was
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
            131_072,
        ),
        ({"rope_type": "linear", "factor": 2.0}, 65_536),
        ({"rope_type": "dynamic", "factor": 2.0}, 65_536),
        # Llama 3.1: the number beside it has the scaled length already
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8_192,
            },
            32_768,
        ),
    ],
)
def test_a_scaled_rope_counts(tmp_path, rope, positions):
    parameters = {**rope, "rope_theta": 10_000.0}
    Qwen3Config(max_position_embeddings=32_768, rope_parameters=parameters).save_pretrained(
        tmp_path
    )
    assert max_positions(str(tmp_path), ModelSection(path=str(tmp_path))) == positions


def test_learned_positions_are_as_many_as_there_are(tmp_path):
    GPT2Config(n_positions=48).save_pretrained(tmp_path)
    assert max_positions(str(tmp_path), ModelSection(path=str(tmp_path))) == 48
