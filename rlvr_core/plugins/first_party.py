"""The plugins that the project publishes, and the components and commands of each.

Known without being installed, so that what is missing can be named with the distribution that has
it. No other name is ever guessed.
"""

_PLUGINS = (
    "algos bs4 checks cluster code devkit doctor env guards gym ifeval lab math sagemaker servers"
    " view"
)
FIRST_PARTY = {name: f"rlvr-{name}" for name in _PLUGINS.split()}
"""Distribution of each plugin."""

_COMMANDS = {
    "view": ("report", "view", "chat", "diff"),
    "doctor": ("doctor", "selftest", "plan", "models", "data"),
    "lab": ("compare", "passk", "regrade", "watch", "calibrate", "export"),
    "cluster": ("sweep", "jobs"),
    "env": ("env",),
    "devkit": ("new", "schema", "tiny-model"),
}
COMMANDS = {command: plugin for plugin, commands in _COMMANDS.items() for command in commands}
"""Plugin of each command that stands beside the core's own, and not below the plugin's name."""

COMPONENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "advantage": {"algos": ("reinforce_plus_plus", "maxrl", "pass_at_k")},
    "dataset": {
        "checks": ("gpqa", "mmlu_pro", "supergpqa", "commands"),
        "env": ("lookup", "verifiers"),
    },
    "engine": {
        "checks": ("openai",),
        "cluster": ("ray",),
        "servers": ("vllm-server", "vllm-shared"),
    },
    "environment": {"env": ("lookup", "verifiers", "remote", "mcp", "openenv", "agent")},
    "eval_task": {
        "checks": ("commands-heldout", "commands-heldout-greedy"),
        "env": ("lookup-heldout", "lookup-heldout-greedy"),
        "lab": ("lm_eval",),
    },
    "forward_path": {"cluster": ("context-parallel",)},
    "guard": {
        "guards": (
            *("preflight", "completions", "advantages", "kl", "loss", "optimizer", "seeds"),
            *("canaries", "collapse", "gpu", "shadow"),
        ),
        "view": ("gaps",),
    },
    "launcher": {"cluster": ("slurm", "ray")},
    "loss": {"algos": ("gmpo", "vespo", "cispo", "sapo", "luspo", "reinforce", "gkd", "opsd")},
    "optimizer": {"algos": ("adamw-8bit", "muon")},
    "tracker": {"lab": ("trackio", "mlflow")},
    "tool_format": {
        "env": ("hermes", "llama", "python", "pythonic", "openai", "qwen3-coder", "gpt-oss")
    },
    "transport": {"servers": ("cuda-ipc", "nccl")},
    "verifier": {
        "checks": ("choice", "first-of", "json", "tool-call", "sql", "judge", "degenerate"),
        "env": ("environment", "verifiers", "verifiers-group"),
    },
    "verifier_pool": {"cluster": ("ray-pool",)},
}
"""Components that are used by their short names, by kind and by the plugin that has them."""
