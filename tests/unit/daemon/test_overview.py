import threading
from pathlib import Path
from typing import Any

from harness.pages import READY, demo_state
from symphony.daemon.overview import with_stars
from symphony.daemon.state_dir import library_key
from symphony.library.model import Rating
from symphony.library.store import Library


def test_the_state_has_its_stars_while_others_open_and_close_the_library(tmp_path: Path) -> None:
    """Each who is the last to close the file locks it for a moment."""
    library, identifier = Library(tmp_path / "library.db"), READY.issue_identifier
    given: dict[str, Any] = {
        "issue_id": READY.issue_id,
        "issue_identifier": identifier,
        "run_ids": ("run-1",),
    }
    key = library_key(tmp_path / "state")
    library.rate(Rating(workflow=key, stars=4, author="operator", **given))
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            library.feedback(key, identifier)

    other = threading.Thread(target=look)
    other.start()
    try:
        documents = [with_stars(demo_state(), library, tmp_path / "state") for _ in range(300)]
    finally:
        done.set()
        other.join()
    stars = [row.stars for one in documents for row in one.ready if row.issue_identifier == identifier]
    assert stars == [4] * 300
