import os
from pathlib import Path

import pytest

from symphony.domain import Category
from symphony.workspaces import (
    Layout,
    StoredRecord,
    WorkspaceError,
    open_root,
    read_record,
    write_record,
)
from symphony.workspaces.ownership import RecordReader, Tenant, read_records, register_tenant, with_digest


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

    def test_a_new_record_replaces_a_damaged_one_and_no_other(self, tmp_path: Path) -> None:
        layout = open_root(tmp_path)
        record = made("SYM-1")
        write_record(layout, record, new=True)
        with pytest.raises(FileExistsError):
            write_record(layout, made("SYM-1", tenant="/b.md"), new=True)
        assert read_record(layout, "SYM-1") == record
        layout.record("SYM-1").write_text("{")
        write_record(layout, made("SYM-1", tenant="/b.md"), new=True)
        assert read_record(layout, "SYM-1") == made("SYM-1", tenant="/b.md")

    def test_a_record_below_the_name_of_another_is_none(self, tmp_path: Path) -> None:
        layout = open_root(tmp_path)
        write_record(layout, made("SYM-1"))
        layout.record("SYM-2").write_bytes(layout.record("SYM-1").read_bytes())
        assert read_record(layout, "SYM-2") is None
        assert [record.key for record in read_records(layout)] == ["SYM-1"]

    def test_two_keys_that_differ_by_case_alone_are_refused_where_one_file_stands_for_both(
        self, tmp_path: Path
    ) -> None:
        layout = open_root(tmp_path)
        write_record(layout, made("SYM-1"))
        if not layout.record("sym-1").exists():
            layout.record("sym-1").hardlink_to(layout.record("SYM-1"))
        with pytest.raises(WorkspaceError) as caught:
            read_record(layout, "sym-1")
        assert caught.value.failure.category is Category.WORKSPACE_UNSAFE_KEY

    def test_a_record_is_read_again_when_it_was_replaced(self, tmp_path: Path) -> None:
        layout, reader = open_root(tmp_path), RecordReader()
        assert reader.read(layout) == []
        write_record(layout, made("SYM-1"))
        (first,) = reader.read(layout)
        assert first == made("SYM-1")
        write_record(layout, made("SYM-2"))
        again = {record.key: record for record in reader.read(layout)}
        assert again["SYM-1"] is first
        write_record(layout, made("SYM-1", tenant="/b.md"))
        layout.record("SYM-2").write_text("{")
        assert reader.read(layout) == [made("SYM-1", tenant="/b.md")]
        layout.record("SYM-1").unlink()
        assert reader.read(layout) == []


def made(key: str, tenant: str | None = None, repo: str | None = None) -> StoredRecord:
    return StoredRecord(issue_id=key, identifier=key, key=key, ready=True, tenant=tenant, repo=repo)


class TestTenants:
    """Workflow files `a.md` and `b.md`; both exist, unless a test removes one."""

    @pytest.fixture(autouse=True)
    def workflows(self, tmp_path: Path) -> None:
        for name in ("a.md", "b.md"):
            (tmp_path / name).touch()

    @pytest.fixture
    def layout(self, tmp_path: Path) -> Layout:
        return open_root(tmp_path / "root")

    def test_a_record_of_no_tenant_belongs_to_the_one_with_its_repository(self, tmp_path: Path) -> None:
        tenant = Tenant.of(str(tmp_path / "a.md"), "https://ann:secret@host.test/x.git")
        own, other = "https://host.test/x.git", "https://host.test/y.git"
        assert tenant.owns(made("1", tenant=str(tmp_path / "a.md"), repo=other))
        assert not tenant.owns(made("1", tenant=str(tmp_path / "b.md"), repo=own))
        assert tenant.owns(made("1", repo=own))
        assert not tenant.owns(made("1", repo=other))
        assert not tenant.owns(made("1"))

    def test_the_workspace_of_another_tenant_is_passed_by_under_another_key(
        self, tmp_path: Path, layout: Layout
    ) -> None:
        first = Tenant.of(str(tmp_path / "a.md"), "https://host.test/x.git")
        second = Tenant.of(str(tmp_path / "b.md"), "https://host.test/y.git")
        assert first.key(layout, "SYM-1", claim=True) == "SYM-1"
        write_record(layout, made("SYM-1", tenant=first.workflow))
        assert first.key(layout, "SYM-1", claim=True) == "SYM-1"
        other = second.key(layout, "SYM-1", claim=True)
        assert other.startswith("SYM-1")
        assert other != "SYM-1"
        write_record(layout, made(other, tenant=second.workflow))
        layout.record("SYM-1").unlink()
        assert second.key(layout, "SYM-1", claim=True) == other, "it stays in use"

    def test_a_branch_of_a_local_repository_belongs_to_who_claimed_it(
        self, tmp_path: Path, layout: Layout, repo: Path
    ) -> None:
        first, second = (Tenant.of(str(tmp_path / name), str(repo)) for name in ("a.md", "b.md"))
        assert second.key(layout, "SYM-1", claim=False) == "SYM-1"
        assert first.key(layout, "SYM-1", claim=True) == "SYM-1"
        assert second.key(layout, "SYM-1", claim=True) != "SYM-1"
        assert first.key(layout, "SYM-1", claim=False) == "SYM-1"
        (tmp_path / "a.md").unlink()
        assert second.key(layout, "SYM-1", claim=True) == "SYM-1", "the one who claimed it is gone"
        (tmp_path / "a.md").touch()
        assert first.key(layout, "SYM-1", claim=True) != "SYM-1", "it was taken over"

    def test_a_claim_that_cannot_be_read_is_respected(
        self, tmp_path: Path, layout: Layout, repo: Path
    ) -> None:
        first, second = (Tenant.of(str(tmp_path / name), str(repo)) for name in ("a.md", "b.md"))
        first.key(layout, "SYM-1", claim=True)
        (claim,) = (repo / ".git" / "symphony" / "branches").iterdir()
        claim.write_text("{")
        assert second.key(layout, "SYM-1", claim=True) != "SYM-1"

    def test_one_repository_has_one_tenant_at_a_root(self, tmp_path: Path, layout: Layout) -> None:
        first, second = (
            Tenant.of(str(tmp_path / name), "https://host.test/x.git") for name in ("a.md", "b.md")
        )
        register_tenant(layout, first)
        register_tenant(layout, first)
        register_tenant(layout, Tenant.of(str(tmp_path / "b.md"), "https://host.test/y.git"))
        with pytest.raises(WorkspaceError) as caught:
            register_tenant(layout, second)
        assert caught.value.failure.category is Category.WORKSPACE_ROOT_TAKEN

    def test_a_tenant_takes_over_from_one_that_is_gone(self, tmp_path: Path, layout: Layout) -> None:
        first, second = (
            Tenant.of(str(tmp_path / name), "https://host.test/x.git") for name in ("a.md", "b.md")
        )
        register_tenant(layout, first)
        write_record(layout, made("SYM-1", tenant=first.workflow))
        write_record(layout, made("SYM-2", tenant="/c.md"))
        (tmp_path / "a.md").unlink()
        register_tenant(layout, second)
        assert {record.key: record.tenant for record in read_records(layout)} == {
            "SYM-1": second.workflow,
            "SYM-2": "/c.md",
        }

    def test_a_damaged_file_of_a_tenant_is_refused(self, tmp_path: Path, layout: Layout) -> None:
        register_tenant(layout, Tenant.of(str(tmp_path / "a.md"), "https://host.test/x.git"))
        (file,) = layout.tenant_files.iterdir()
        file.write_text("{")
        with pytest.raises(WorkspaceError) as caught:
            register_tenant(layout, Tenant.of(str(tmp_path / "b.md"), "https://host.test/y.git"))
        assert caught.value.failure.category is Category.WORKSPACE_ROOT_TAKEN


def test_a_key_with_a_digest_is_no_longer_than_a_name_may_be() -> None:
    assert with_digest("k" * 246, "owner").startswith("k" * 246 + "-")
    assert not with_digest("k" * 247, "owner").startswith("k")
    assert len(with_digest("k" * 246, "owner")) == 255
