"""A contract for import-linter: some packages may import only what a list allows.

In ``pyproject.toml``: ``type = "allow"``. A list of what is allowed holds longer than a list of
what is forbidden: a new module is not allowed until somebody decides that it is.
"""

from __future__ import annotations

from typing import cast

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowContract(Contract):
    """Imports of ``of`` are of ``allowed`` modules, or of the importer's own package.

    Attributes:
        importers: Packages; ``package.*`` stands for each package below one.
        of: The package whose modules are restricted.
        allowed: Modules that may be imported. Modules below them are not implied.
    """

    importers = fields.ListField(subfield=fields.StringField())
    of = fields.StringField()
    allowed = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Collect every direct import that the list does not allow."""
        of, allowed = str(self.of), set(cast("list[str]", self.allowed))
        faults = []
        for package in self._packages(graph):
            for importer in sorted({package, *graph.find_descendants(package)}):
                for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                    own = imported == package or imported.startswith(f"{package}.")
                    if own or imported in allowed or not f"{imported}.".startswith(f"{of}."):
                        continue
                    details = graph.get_import_details(importer=importer, imported=imported)
                    line = details[0]["line_number"] if details else "?"
                    faults.append(f"{importer} -> {imported} (l.{line})")
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line for each import."""
        allowed = ", ".join(cast("list[str]", self.allowed))
        output.print_error(f"Only {allowed} may be imported here:", bold=True)
        for fault in check.metadata["faults"]:
            output.print_error(f"- {fault}", bold=False)

    def _packages(self, graph: ImportGraph) -> list[str]:
        packages: list[str] = []
        for name in cast("list[str]", self.importers):
            base = name.removesuffix(".*")
            below = [
                child for child in sorted(graph.find_children(base)) if graph.find_children(child)
            ]
            packages += below if name.endswith(".*") else [name]
        return packages
