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
    "diff": "lab",
    "sweep": "cluster",
    "jobs": "cluster",
    "env": "env",
    "new": "devkit",
}
"""Plugin of each command that stands beside the core's own, and not below the plugin's name."""

COMPONENTS = {
    **dict.fromkeys(("gmpo", "vespo", "cispo", "sapo", "luspo", "reinforce"), "algos"),
    **dict.fromkeys(("gkd", "opsd", "reinforce_plus_plus", "maxrl", "pass_at_k"), "algos"),
    **dict.fromkeys(("adamw-8bit", "muon"), "algos"),
    **dict.fromkeys(("choice", "first-of", "json", "tool-call", "sql", "judge"), "checks"),
    **dict.fromkeys(("degenerate", "gpqa", "mmlu_pro", "supergpqa", "commands"), "checks"),
    **dict.fromkeys(("commands-heldout", "commands-heldout-greedy"), "checks"),
    **dict.fromkeys(("slurm", "ray", "ray-pool"), "cluster"),
    **dict.fromkeys(("lookup", "lookup-heldout", "lookup-heldout-greedy"), "env"),
    **dict.fromkeys(("verifiers", "verifiers-group", "environment"), "env"),
    **dict.fromkeys(("remote", "mcp", "openenv", "agent"), "env"),
    **dict.fromkeys(("hermes", "llama", "python", "pythonic", "qwen3-coder", "gpt-oss"), "env"),
    "lm_eval": "lab",
}
"""Plugin of each component that was the core's, by its short name."""
