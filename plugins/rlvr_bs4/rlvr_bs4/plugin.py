"""Registers what rlvr-bs4 offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the generated pages."""
    add = registrar.add
    add("pages", "rlvr_bs4.datasets:Pages", summary="Questions with the web pages in the prompt.")
    add("web", "rlvr_bs4.web.datasets:Web", summary="The same questions, for tools in bs4/web.")
    add("tiny", "rlvr_bs4.web.tiny:Tiny", summary="A number on a tiny page, for tiny models.")


@hookimpl
def register_environments(registrar: Registrar) -> None:
    """Add conversations about a site."""
    add = registrar.add
    add("web", "rlvr_bs4.web.environment:Web", summary="Programs read pages, then an answer.")
    add("tiny", "rlvr_bs4.web.tiny:TinyWeb", summary="The tools of bs4/web on a tiny page.")


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifiers of answers and of how they were found."""
    add = registrar.add
    add("answer", "rlvr_bs4.verifiers:Answer", summary="The final JSON answer equals the truth.")
    add("process", "rlvr_bs4.web.process:Process", summary="How far programs read the pages.")


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the benchmark."""
    add = registrar.add
    add("bench", "rlvr_bs4.evals:Bench", summary="The manifest's tasks, answered greedily.")
    add("web-bench", "rlvr_bs4.web.datasets:WebBench", summary="The same tasks, with tools.")
    add("tiny-heldout", "rlvr_bs4.web.tiny:TinyHeldout", summary="Unseen tiny pages, sampled.")


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add ``rlvr bs4 ...``."""
    add = registrar.add
    add("preview", "rlvr_bs4.commands:preview", summary="Show a task and its truth.")
    add("verify-manifest", "rlvr_bs4.commands:verify_manifest", summary="Check every task's hash.")
    add("explain", "rlvr_bs4.commands:explain", summary="Say how a response is graded.")
