"""A process with a library on a disk of its own.

python -m harness.library_child full PATH        fill the disk, and make room again
python -m harness.library_child readonly PATH    a file system that cannot be written any more
"""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

from symphony.domain import Failure
from symphony.library.model import Authorship, LibraryError, SkillText
from symphony.library.store import Library, check

ADA = Authorship(author="ada")


def add_until_refused(library: Library) -> tuple[list[str], Failure]:
    """The names of the skills that were kept, and why the next one was not."""
    kept: list[str] = []
    for number in count():
        text = SkillText(
            name=f"s-{number}", description="Style.", when_to_use="", content=f"{number}\n" * 5_000
        )
        try:
            library.add(text, ADA)
        except LibraryError as error:
            return kept, error.failure
        kept.append(text.name)
    raise AssertionError


def be_full(path: Path) -> None:
    """Fill the disk by skills, after which one is refused; then there is room again."""
    library = Library(path)
    room = path.with_name("room")
    room.write_bytes(bytes(300_000))
    kept, failure = add_until_refused(library)
    copy = path.with_name("copy.db")
    try:
        library.backup(copy)
    except LibraryError:
        _say(left=[one.name for one in path.parent.iterdir() if one.name.startswith("copy")])
    room.unlink()
    there = [one.name for one in library.skills()]
    check(path)
    library.add(SkillText(name="later", description="Style.", when_to_use="", content="Be brief.\n"), ADA)
    _say(lost=sorted(set(kept) - set(there)), more=sorted(set(there) - set(kept)), **_words(failure))


def be_readonly(path: Path) -> None:
    """Keep one skill; then neither a reader nor a writer can change anything."""
    library = Library(path)
    library.add(SkillText(name="style", description="Style.", when_to_use="", content="Be brief.\n"), ADA)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(path.parent)], check=True)
    _, failure = add_until_refused(library)
    subprocess.run(["mount", "-o", "remount,bind,rw", str(path.parent)], check=True)
    _say(there=[one.name for one in library.skills()], **_words(failure))


def _words(failure: Failure) -> dict[str, object]:
    return {"message": failure.message, "hint": failure.hint, "retryable": failure.retryable}


def _say(**facts: object) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    {"full": be_full, "readonly": be_readonly}[sys.argv[1]](Path(sys.argv[2]))
