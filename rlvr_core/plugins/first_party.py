"""What the project publishes beside the core: its plugins, and what comes with each.

Known without being installed, so that what is missing can be named with the distribution that has
it. No other name is ever guessed.
"""

FIRST_PARTY = {
    "math": "rlvr-math",
    "ifeval": "rlvr-ifeval",
    "code": "rlvr-code",
    "bs4": "rlvr-bs4",
    "gym": "rlvr-gym",
    "sagemaker": "rlvr-sagemaker",
    "algos": "rlvr-algos",
    "checks": "rlvr-checks",
    "cluster": "rlvr-cluster",
    "devkit": "rlvr-devkit",
    "doctor": "rlvr-doctor",
    "env": "rlvr-env",
    "lab": "rlvr-lab",
    "servers": "rlvr-servers",
    "view": "rlvr-view",
}
"""Distribution of each plugin."""

COMMANDS = {
    "report": "view",
    "view": "view",
    "chat": "view",
    "doctor": "doctor",
    "selftest": "doctor",
    "plan": "doctor",
    "models": "doctor",
    "data": "doctor",
    "compare": "lab",
    "passk": "lab",
    "regrade": "lab",
    "watch": "lab",
    "calibrate": "lab",
    "export": "lab",
    "diff": "view",
    "sweep": "cluster",
    "jobs": "cluster",
    "env": "env",
    "new": "devkit",
    "schema": "devkit",
    "tiny-model": "devkit",
}
"""Plugin of each command that stands beside the core's own, and not below the plugin's name."""

COMPONENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "advantage": {
        "algos": ("reinforce_plus_plus", "maxrl", "pass_at_k"),
    },
    "dataset": {
        "checks": ("gpqa", "mmlu_pro", "supergpqa", "commands"),
        "env": ("lookup", "verifiers"),
    },
    "engine": {
        "checks": ("openai",),
        "cluster": ("ray",),
        "servers": ("vllm-server",),
    },
    "environment": {
        "env": ("lookup", "verifiers", "remote", "mcp", "openenv", "agent"),
    },
    "eval_task": {
        "checks": ("commands-heldout", "commands-heldout-greedy"),
        "env": ("lookup-heldout", "lookup-heldout-greedy"),
        "lab": ("lm_eval",),
    },
    "guard": {
        "view": ("gaps",),
    },
    "launcher": {
        "cluster": ("slurm", "ray"),
    },
    "loss": {
        "algos": ("gmpo", "vespo", "cispo", "sapo", "luspo", "reinforce", "gkd", "opsd"),
    },
    "optimizer": {
        "algos": ("adamw-8bit", "muon"),
    },
    "tracker": {
        "lab": ("trackio", "mlflow"),
    },
    "tool_format": {
        "env": ("hermes", "llama", "python", "pythonic", "openai", "qwen3-coder", "gpt-oss"),
    },
    "transport": {
        "servers": ("nccl",),
    },
    "verifier": {
        "checks": ("choice", "first-of", "json", "tool-call", "sql", "judge", "degenerate"),
        "env": ("environment", "verifiers", "verifiers-group"),
    },
    "verifier_pool": {
        "cluster": ("ray-pool",),
    },
}
"""Short names of components that were the core's, by kind and by the plugin that has them."""
