import os
from pathlib import Path

from symphony.workspaces import changed_files, hash_watched_files


class TestWatchedFiles:
    def test_an_untouched_directory_is_unchanged(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("[core]\n")

        assert changed_files(tmp_path, hash_watched_files(tmp_path)) == ()

    def test_changed_added_and_removed_files_are_named(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("[core]\n")
        (tmp_path / "info").mkdir()
        (tmp_path / "info" / "attributes").write_text("")
        (tmp_path / "hooks").mkdir()
        (tmp_path / "hooks" / "pre-push.sample").write_text("")
        sealed = hash_watched_files(tmp_path)

        (tmp_path / "config").write_text("[core]\n\tfsmonitor = evil\n")
        (tmp_path / "info" / "attributes").unlink()
        (tmp_path / "hooks" / "pre-commit").write_text("")
        (tmp_path / "hooks" / "other.sample").write_text("")
        os.mkfifo(tmp_path / "commondir")

        assert changed_files(tmp_path, sealed) == (
            "commondir",
            "config",
            "hooks/pre-commit",
            "info/attributes",
        )

    def test_a_hooks_directory_behind_a_link_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "hooks").symlink_to(tmp_path)

        assert changed_files(tmp_path, {}) == ("hooks",)
