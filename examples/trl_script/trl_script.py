"""GRPO with TRL: python trl_script.py MODEL OUT [SEED], in this folder."""

import sys

from datasets import load_dataset
from rewards import correct, worked
from trl import GRPOConfig, GRPOTrainer

model, out, seed = [*sys.argv[1:], "0"][:3]

config = GRPOConfig(
    output_dir=out,
    seed=int(seed),
    max_steps=60,
    per_device_train_batch_size=128,  # completions: 16 prompts x 8
    num_generations=8,
    max_completion_length=44,
    learning_rate=7e-4,
    lr_scheduler_type="linear",
    warmup_steps=5,
    adam_beta2=0.95,
    reward_weights=[1.0, 0.2],
    bf16=False,
    gradient_checkpointing=False,
    use_cpu=True,
    report_to="none",
    save_strategy="no",
)
trainer = GRPOTrainer(
    model=model,
    args=config,
    reward_funcs=[correct, worked],
    train_dataset=load_dataset("json", data_files="sums.jsonl", split="train"),
)
trainer.train()
trainer.save_model(out)
