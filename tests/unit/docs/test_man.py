import subprocess

from harness.real import require_program
from manual.page import PAGE, page


def test_the_man_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "make man"


def test_troff_has_nothing_to_object_to() -> None:
    groff = require_program("groff", "Debian: groff-base")
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tascii", str(PAGE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
