"""Registers what rlvr-bs4 offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the generated pages."""
    registrar.add(
        "pages",
        "rlvr_bs4.datasets:Pages",
        summary="Questions about generated web pages, with the pages in the prompt.",
    )
    registrar.add(
        "web",
        "rlvr_bs4.web.datasets:Web",
        summary="The same questions, to be answered with tools in the environment bs4/web.",
    )
    registrar.add(
        "tiny",
        "rlvr_bs4.web.tiny:Tiny",
        summary="A number on a tiny page, to be read by a program; a tiny model learns to run it.",
    )


@hookimpl
def register_environments(registrar: Registrar) -> None:
    """Add conversations about a site."""
    registrar.add(
        "web",
        "rlvr_bs4.web.environment:Web",
        summary="Programs with BeautifulSoup in a sandbox, moving between pages, then an answer.",
    )
    registrar.add(
        "tiny",
        "rlvr_bs4.web.tiny:TinyWeb",
        summary="The tools of bs4/web on a tiny page that is drawn anew in each conversation.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifier of final answers."""
    registrar.add(
        "answer",
        "rlvr_bs4.verifiers:Answer",
        summary="The final JSON answer equals the truth, or says with evidence why there is none.",
    )
    registrar.add(
        "process",
        "rlvr_bs4.web.process:Process",
        summary="How much of parsing, searching and reading a page programs did in bs4/web.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the benchmark."""
    registrar.add(
        "bench",
        "rlvr_bs4.evals:Bench",
        summary="The tasks of the manifest, all archetypes in balance, answered greedily.",
    )
    registrar.add(
        "web-bench",
        "rlvr_bs4.web.datasets:WebBench",
        summary="The same tasks, answered greedily with tools in the environment bs4/web.",
    )
    registrar.add(
        "tiny-heldout",
        "rlvr_bs4.web.tiny:TinyHeldout",
        summary="Unseen questions of bs4/tiny, sampled at temperature 1.",
    )


@hookimpl
def register_commands(registrar: Registrar) -> None:
    """Add ``rlvr bs4 ...``."""
    registrar.add("preview", "rlvr_bs4.commands:preview", summary="Show a task and its truth.")
    registrar.add(
        "verify-manifest",
        "rlvr_bs4.commands:verify_manifest",
        summary="Make every task of the manifest again and compare hashes.",
    )
    registrar.add("explain", "rlvr_bs4.commands:explain", summary="Say how a response is graded.")
