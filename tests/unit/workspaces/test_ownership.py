import os
from pathlib import Path

import pytest

from symphony.workspaces import Layout, StoredRecord, open_root, read_record, write_record


class TestRecords:
    def test_one_is_written_though_the_directory_has_vanished(self, tmp_path: Path) -> None:
        layout, entry = (
            Layout(tmp_path),
            StoredRecord(issue_id="1", identifier="SYM-1", key="SYM-1", ready=True),
        )

        write_record(layout, entry)

        assert read_record(layout, "SYM-1") == entry
        assert layout.records.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("kind", ["directory", "pipe", "link", "loop"])
    def test_what_is_no_plain_file_is_no_record(self, tmp_path: Path, kind: str) -> None:
        layout = open_root(tmp_path)
        write_record(layout, StoredRecord(issue_id="1", identifier="SYM-1", key="SYM-1", ready=True))
        path = layout.record("SYM-1")
        path.rename(tmp_path / "record")
        match kind:
            case "directory":
                path.mkdir()
            case "pipe":
                os.mkfifo(path)
            case "link":
                path.symlink_to(tmp_path / "record")
            case _:
                path.symlink_to(path)

        assert read_record(layout, "SYM-1") is None
