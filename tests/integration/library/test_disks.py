"""A library on a full or read-only disk: what was kept stays, and the rest is refused with a reason."""

from pathlib import Path

from harness.small_disk import on_a_small_disk


def test_a_full_disk_refuses_a_skill_and_keeps_all_others(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    backup, told = on_a_small_disk(tmp_path, "harness.library_child", "full", str(path))
    assert backup == {"left": []}, "no half of a copy"
    assert (told["lost"], told["more"]) == ([], []), "what was answered is what is there"
    assert str(path) in told["message"]
    assert (told["hint"], told["retryable"]) == ("make room on the disk", True)


def test_a_read_only_file_system_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    (told,) = on_a_small_disk(tmp_path, "harness.library_child", "readonly", str(path))
    assert told["there"] == ["style"]
    assert str(path) in told["message"]
    assert "writable" in told["hint"]
