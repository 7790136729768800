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
}
"""Distribution of each plugin."""

COMMANDS: dict[str, str] = {}
"""Plugin of each command that stands beside the core's own, and not below the plugin's name."""
