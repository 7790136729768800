"""Registers what rlvr-env offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlvr_core.api import Registrar, hookimpl

if TYPE_CHECKING:  # ``rlvr --help`` reads the commands below, and must not wait for torch
    from collections.abc import Sequence

    from rlvr_core.api import Problem
    from rlvr_core.api.rollouts import Conversations
    from rlvr_core.toolkit import EnvironmentSection, Host


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the datasets."""
    registrar.add(
        "lookup",
        "rlvr_env.environments.lookup:Lookup",
        summary="Generated questions that only a tool can answer; a tiny model learns to call it.",
    )
    registrar.add(
        "verifiers",
        "rlvr_env.bridges.inside:Rows",
        summary="Rows of an environment of the package verifiers; needs it.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifiers."""
    registrar.add(
        "environment",
        "rlvr_env.environments.verdict:EnvironmentVerdict",
        summary="The environment's own verdict on a conversation.",
    )
    registrar.add(
        "verifiers",
        "rlvr_env.bridges.inside:Rubric",
        summary="The rubric of an environment of the package verifiers.",
    )
    registrar.add(
        "verifiers-group",
        "rlvr_env.bridges.inside:GroupRubric",
        summary="Such a rubric that compares the answers to a problem.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the eval tasks."""
    registrar.add(
        "lookup-heldout",
        "rlvr_env.environments.lookup:LookupHeldout",
        summary="Unseen lookups of env/lookup, sampled at temperature 1.",
    )
    registrar.add(
        "lookup-heldout-greedy",
        "rlvr_env.environments.lookup:LookupHeldoutGreedy",
        summary="The same lookups, greedy.",
    )


@hookimpl
def register_environments(registrar: Registrar) -> None:
    """Add the environments."""
    registrar.add(
        "lookup",
        "rlvr_env.environments.lookup:LookupWorld",
        summary="A table behind one tool: call it, read the result, answer.",
    )
    registrar.add(
        "verifiers",
        "rlvr_env.bridges.inside:Conversations",
        summary="Turns and tools of an environment of the package verifiers.",
    )
    registrar.add(
        "remote",
        "rlvr_env.servers.remote:Remote",
        summary="An environment in a server of its own, by WebSocket; see rlvr env serve.",
    )
    registrar.add(
        "mcp",
        "rlvr_env.servers.mcp:Mcp",
        summary="The tools of an MCP server, over stdio or streamable HTTP.",
    )
    registrar.add(
        "openenv",
        "rlvr_env.servers.openenv:OpenEnv",
        summary="An environment that a server of OpenEnv plays.",
    )
    registrar.add(
        "agent",
        "rlvr_env.agents.environment:Agent",
        summary="An agent program that speaks OpenAI's interface, trained by its conversations.",
    )


@hookimpl
def register_tool_formats(registrar: Registrar) -> None:
    """Add the tool formats."""
    registrar.add(
        "hermes",
        "rlvr_env.environments.tool_formats:Hermes",
        summary="JSON in <tool_call> tags, as Hermes and Qwen write it.",
    )
    registrar.add(
        "llama",
        "rlvr_env.environments.tool_formats:Llama",
        summary="A turn that is JSON, as Llama 3 writes it.",
    )
    registrar.add(
        "python",
        "rlvr_env.environments.tool_formats:Python",
        summary="A fenced block of Python, as a call of the tool python.",
    )
    registrar.add(
        "pythonic",
        "rlvr_env.environments.more_formats:Pythonic",
        summary="Calls as Python writes them, [get(key='a')], as Llama 4 does.",
    )
    registrar.add(
        "openai",
        "rlvr_env.environments.more_formats:OpenAI",
        summary="The tool_calls of OpenAI's interface, with arguments as text, or plain JSON.",
    )
    registrar.add(
        "qwen3-coder",
        "rlvr_env.environments.more_formats:QwenCoder",
        summary="<function=...> with <parameter=...> in it, as Qwen3-Coder writes it.",
    )
    registrar.add(
        "gpt-oss",
        "rlvr_env.environments.more_formats:GptOss",
        summary="Harmony's messages to functions, as gpt-oss writes them.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add the commands."""
    registrar.add(
        "env",
        "rlvr_env.servers.command:env",
        summary="Serve environments to runs.",
    )


@hookimpl
def plan_conversations(
    section: EnvironmentSection, problems: Sequence[Problem], host: Host
) -> Conversations:
    """Plan which environment plays which problem."""
    from rlvr_env.environments.plan import EnvironmentPlan

    return EnvironmentPlan.build(section, problems, host)
