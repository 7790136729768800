"""Figures that the stand-in for a GPU gave: ``python tests/gpu_standin/run.py '[CASE]'``."""

MEASURED = (
    {
        "name": "Qwen3-1.7B",
        "case": {"size": "1.7B", "groups": 5, "n": 8, "prompt": 150, "tokens": 512, "budget": 16384, "skewed": False},
        "micro_batches": [
            {"tokens": 15930, "loss_tokens": 15360, "keys": 20430},
            {"tokens": 5410, "loss_tokens": 5120, "keys": 6910},
        ],
        "peak": 86_021_048_320,
        "flops": 237_081_136_168_960,
    },
    {
        "name": "Qwen3-1.7B, reference",
        "case": {"size": "1.7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "beta": 0.001, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 59_285_443_072,
        "flops": 187_445_717_434_368,
    },
    {
        "name": "Qwen3-1.7B, checkpointing, reference, skewed lengths",
        "case": {"size": "1.7B", "groups": 8, "n": 8, "prompt": 150, "tokens": 512, "beta": 0.001, "checkpointing": True, "budget": 16384},
        "micro_batches": [
            {"tokens": 11356, "loss_tokens": 10548, "keys": 14883},
            {"tokens": 5541, "loss_tokens": 4645, "keys": 9462},
        ],
        "peak": 34_704_888_320,
        "flops": 277_938_680_885_248,
    },
    {
        "name": "Qwen3-1.7B, checkpointing, offloaded reference",
        "case": {"size": "1.7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "beta": 0.001, "offload": True, "checkpointing": True, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 31_885_900_800,
        "flops": 215_791_798_910_976,
    },
    {
        "name": "Qwen3-1.7B, checkpointing, 4,096-token completions",
        "case": {"size": "1.7B", "groups": 2, "n": 8, "prompt": 150, "tokens": 4096, "checkpointing": True, "budget": 32768, "skewed": False},
        "micro_batches": [
            {"tokens": 28815, "loss_tokens": 28672, "keys": 29865},
            {"tokens": 28965, "loss_tokens": 28672, "keys": 30015},
            {"tokens": 8340, "loss_tokens": 8192, "keys": 8640},
        ],
        "peak": 40_101_546_496,
        "flops": 1_009_116_312_698_880,
    },
    {
        "name": "Qwen3-1.7B, checkpointing, Muon",
        "case": {"size": "1.7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "muon": True, "checkpointing": True, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 25_626_241_024,
        "flops": 238_680_382_308_352,
    },
    {
        "name": "Qwen3-1.7B, float32",
        "case": {"size": "1.7B", "groups": 1, "n": 8, "prompt": 150, "tokens": 512, "dtype": "float32", "budget": 4096, "skewed": False},
        "micro_batches": [
            {"tokens": 3727, "loss_tokens": 3584, "keys": 4777, "query_slots": 3727, "key_slots": 4777, "mask": 2364397},
            {"tokens": 661, "loss_tokens": 512, "keys": 811, "query_slots": 661, "key_slots": 811, "mask": 337771},
        ],
        "peak": 45_442_543_104,
        "flops": 48_740_736_434_176,
    },
    {
        "name": "Qwen3-1.7B, float32, checkpointing",
        "case": {"size": "1.7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "dtype": "float32", "checkpointing": True, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215, "query_slots": 7965, "key_slots": 10215, "mask": 5066565},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249, "query_slots": 4899, "key_slots": 6249, "mask": 3039939},
        ],
        "peak": 31_263_544_320,
        "flops": 174_008_133_353_472,
    },
    {
        "name": "Qwen3-1.7B, LoRA of rank 16",
        "case": {"size": "1.7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "lora": 16, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 30_516_937_728,
        "flops": 99_609_779_699_712,
    },
    {
        "name": "Qwen3-1.7B, LoRA of rank 16, checkpointing",
        "case": {"size": "1.7B", "groups": 5, "n": 8, "prompt": 150, "tokens": 512, "lora": 16, "checkpointing": True, "budget": 16384, "skewed": False},
        "micro_batches": [
            {"tokens": 15930, "loss_tokens": 15360, "keys": 20430},
            {"tokens": 5410, "loss_tokens": 5120, "keys": 6910},
        ],
        "peak": 8_252_692_992,
        "flops": 228_829_624_565_760,
    },
    {
        "name": "Qwen3-1.7B, LoRA of rank 16, float32",
        "case": {"size": "1.7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "lora": 16, "dtype": "float32"},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215, "query_slots": 7965, "key_slots": 10215, "mask": 5066565},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249, "query_slots": 4899, "key_slots": 6249, "mask": 3039939},
        ],
        "peak": 8_854_055_936,
        "flops": 33_206_018_113_536,
    },
    {
        "name": "Qwen3-1.7B, LoRA of rank 16, float32, checkpointing",
        "case": {"size": "1.7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "checkpointing": True, "lora": 16, "dtype": "float32"},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215, "query_slots": 7965, "key_slots": 10215, "mask": 5066565},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249, "query_slots": 4899, "key_slots": 6249, "mask": 3039939},
        ],
        "peak": 4_276_305_920,
        "flops": 38_715_031_683_072,
    },
    {
        "name": "Qwen3-8B",
        "case": {"size": "8B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 42_734_882_816,
        "flops": 119_879_078_117_376,
    },
    {
        "name": "Qwen3-8B, checkpointing",
        "case": {"size": "8B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "checkpointing": True},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 36_467_977_216,
        "flops": 134_884_265_951_232,
    },
    {
        "name": "Qwen3-8B, LoRA of rank 32, checkpointing",
        "case": {"size": "8B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "checkpointing": True, "lora": 32},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 7_109_956_608,
        "flops": 105_241_089_540_096,
    },
    {
        "name": "Llama-3.2-1B",
        "case": {"size": "Llama-3.2-1B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 13_233_907_200,
        "flops": 44_185_701_777_408,
    },
    {
        "name": "Llama-3.2-1B, checkpointing",
        "case": {"size": "Llama-3.2-1B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "checkpointing": True},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 11_247_547_392,
        "flops": 48_882_608_308_224,
    },
    {
        "name": "Llama-3.2-1B, LoRA of rank 16",
        "case": {"size": "Llama-3.2-1B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "lora": 16},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 5_667_565_568,
        "flops": 31_524_637_310_976,
    },
    {
        "name": "Llama-3.2-1B, LoRA of rank 16, checkpointing",
        "case": {"size": "Llama-3.2-1B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "checkpointing": True, "lora": 16},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 2_671_947_776,
        "flops": 38_017_251_213_312,
    },
    {
        "name": "Qwen2.5-7B",
        "case": {"size": "Qwen2.5-7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 42_839_518_208,
        "flops": 124_766_306_058_240,
    },
    {
        "name": "Qwen2.5-7B, checkpointing",
        "case": {"size": "Qwen2.5-7B", "groups": 3, "n": 8, "prompt": 150, "tokens": 512, "layers": 4, "budget": 8192, "skewed": False, "checkpointing": True},
        "micro_batches": [
            {"tokens": 7965, "loss_tokens": 7680, "keys": 10215},
            {"tokens": 4899, "loss_tokens": 4608, "keys": 6249},
        ],
        "peak": 36_125_794_304,
        "flops": 142_050_420_965_376,
    },
)
