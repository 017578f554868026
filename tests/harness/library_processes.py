"""What processes of their own do with one library file; `multiprocessing` starts them."""

from pathlib import Path

from msgspec import structs

from symphony.library.model import Change, StaleVersionError
from symphony.library.store import Library

__all__ = ["write_versions"]


def write_versions(path: Path, writer: int, count: int) -> list[int]:
    """Make so many versions of the only skill, each on top of the newest; their numbers."""
    library = Library(path)
    made: list[int] = []
    (head,) = library.skills()
    while len(made) < count:
        present = library.skill(head.name)
        text = structs.replace(present.text, content=f"By {writer}: {len(made)}\n")
        change = Change(author=f"writer-{writer}")
        try:
            made.append(library.edit(text, change, base_version=present.version).version)
        except StaleVersionError:
            continue  # another one was first
    return made
