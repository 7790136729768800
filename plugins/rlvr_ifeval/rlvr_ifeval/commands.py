"""``rlvr ifeval list``: the constraints, their arguments and what they ask for."""

from __future__ import annotations

from typing import Any, get_origin

import click

from rlvr_core.terminal import output
from rlvr_ifeval.constraint import Constraint
from rlvr_ifeval.ifbench import IFBENCH
from rlvr_ifeval.ifeval import IFEVAL
from rlvr_ifeval.multi import MULTI
from rlvr_ifeval.rlvr import RLVR

_SETS = {known.name: known for known in (IFEVAL, MULTI, RLVR, IFBENCH)}


@click.command("list")
@click.argument("verifier", type=click.Choice(list(_SETS)), required=False)
def list_constraints(verifier: str | None) -> None:
    """List the constraints of VERIFIER, or of all; arguments in brackets may be absent."""
    rows = [
        (name, constraint.id, _arguments(constraint), _wording(constraint))
        for name, known in _SETS.items()
        for constraint in known
        if verifier in (None, name) and (verifier or name != "multi" or constraint.id not in IFEVAL)
    ]
    output.print_table(("verifier", "constraint", "arguments", "asks for"), rows)


def _arguments(constraint: Constraint[Any]) -> str:
    fields = constraint.args.model_fields.items()
    return ", ".join(name if field.is_required() else f"[{name}]" for name, field in fields)


def _wording(constraint: Constraint[Any]) -> str:
    """The wording, each argument standing for itself."""
    names = {
        name: [f"{{{name}}}"] if get_origin(field.annotation) is list else f"{{{name}}}"
        for name, field in constraint.args.model_fields.items()
    }
    return " ".join(constraint.text(constraint.args.model_construct(**names)).split())
