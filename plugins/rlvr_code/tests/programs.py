"""Programs that lie in text files: ``### name`` begins each."""

from pathlib import Path


def read(name: str) -> dict[str, str]:
    """The programs of a file beside this one, by name.

    Raises:
        ValueError: If two have one name.
    """
    programs: dict[str, str] = {}
    text = (Path(__file__).parent / name).read_text()
    for program in text.split("\n### ")[1:]:
        title, _, code = program.partition("\n")
        if title in programs:
            raise ValueError(f"{name}: {title} is there twice")
        programs[title] = code.rstrip("\n")
    return programs
