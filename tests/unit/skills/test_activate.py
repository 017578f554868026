import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.skills import (
    MAX_BODY_BYTES,
    MAX_FILES,
    Activation,
    Activations,
    ActivationStatus,
    ContentError,
    SkillPath,
    read_content,
)

ROOT = ".symphony/skills"


def write(
    workspace: Path, name: str, body: str | bytes = "Do it well.\n", *, head: str | None = None
) -> Path:
    directory = workspace / ROOT / name
    directory.mkdir(parents=True, exist_ok=True)
    front = f"---\nname: {name}\ndescription: d\n---\n" if head is None else head
    raw = body.encode() if isinstance(body, str) else body
    (directory / "SKILL.md").write_bytes(front.encode() + raw)
    return directory


def session(workspace: Path, *names: str) -> Activations:
    return Activations(
        SkillPath(name=name, anchor=workspace, path=f"{ROOT}/{name}/SKILL.md") for name in names
    )


def activate(workspace: Path, name: str) -> Activation:
    return session(workspace, name).activate(name)


class TestTheAnswer:
    def test_it_holds_the_body_the_directory_and_the_bundled_files(self, tmp_path: Path) -> None:
        directory = write(tmp_path, "pdf", "# How\n\nUse `scripts/x.py`.\n")
        (directory / "scripts").mkdir()
        (directory / "scripts" / "x.py").write_text("secret content")
        (directory / "a & b.txt").write_text("")
        answer = activate(tmp_path, "pdf")
        assert answer.status is ActivationStatus.ACTIVATED
        assert answer.success
        assert answer.text == "\n".join(
            [
                '<skill_content name="pdf">',
                "# How",
                "",
                "Use `scripts/x.py`.",
                "",
                f"Skill directory: {directory}",
                "Relative paths in this skill start there. This text comes from the repository.",
                "<skill_resources>",
                "  <file>a &amp; b.txt</file>",
                "  <file>scripts/x.py</file>",
                "</skill_resources>",
                "</skill_content>",
            ]
        )

    def test_a_skill_without_files_has_no_list(self, tmp_path: Path) -> None:
        write(tmp_path, "pdf")
        assert "skill_resources" not in activate(tmp_path, "pdf").text

    @pytest.mark.parametrize("closing", ["</skill_content>", "< / SKILL_CONTENT >", "</skill_content"])
    def test_the_body_cannot_end_its_wrapping(self, tmp_path: Path, closing: str) -> None:
        write(tmp_path, "pdf", f"before {closing} after")
        text = activate(tmp_path, "pdf").text
        assert text.lower().count("</skill_content>") == 1
        assert f"before &lt;{closing[1:]} after" in text

    def test_a_name_cannot_end_its_attribute(self, tmp_path: Path) -> None:
        write(tmp_path, "odd")
        name = 'x"><b>\n'
        answer = Activations([SkillPath(name=name, anchor=tmp_path, path=f"{ROOT}/odd/SKILL.md")]).activate(
            name
        )
        assert answer.text.splitlines()[0] == '<skill_content name="x&quot;&gt;&lt;b&gt;">'

    def test_a_file_without_front_matter_is_all_body(self, tmp_path: Path) -> None:
        write(tmp_path, "pdf", "only text", head="")
        assert "\nonly text\n" in activate(tmp_path, "pdf").text

    def test_front_matter_that_is_too_large_is_shown_as_it_is(self, tmp_path: Path) -> None:
        write(tmp_path, "pdf", "x", head="---\n# " + "y" * 70_000 + "\n---\n")
        assert activate(tmp_path, "pdf").success

    def test_line_ends_and_foreign_bytes_do_no_harm(self, tmp_path: Path) -> None:
        write(tmp_path, "pdf", b"one\r\ntwo \xff\r\n")
        assert "\none\ntwo \ufffd\n" in activate(tmp_path, "pdf").text

    def test_a_very_long_body_ends_early_and_says_so(self, tmp_path: Path) -> None:
        write(tmp_path, "pdf", "x" * (MAX_BODY_BYTES + 5))
        text = activate(tmp_path, "pdf").text
        assert len(text) < MAX_BODY_BYTES + 1_000
        assert "goes on beyond 512 KiB" in text


class TestTheRecord:
    def test_a_second_request_does_not_repeat_the_body(self, tmp_path: Path) -> None:
        write(tmp_path, "pdf", "the body")
        ours = session(tmp_path, "pdf")
        ours.activate("pdf")
        again = ours.activate("pdf")
        assert (again.status, again.success) == (ActivationStatus.ALREADY_ACTIVE, True)
        assert "the body" not in again.text
        assert ours.active.keys() == {"pdf"}

    def test_after_a_compaction_the_body_is_given_again(self, tmp_path: Path) -> None:
        write(tmp_path, "pdf", "the body")
        ours = session(tmp_path, "pdf")
        ours.activate("pdf")
        ours.forget()
        assert ours.active == {}
        assert "the body" in ours.activate("pdf").text

    def test_a_resumed_conversation_has_what_it_was_given_unless_it_changed(self, tmp_path: Path) -> None:
        for name in ("pdf", "changed", "new"):
            write(tmp_path, name, "the body")
        before = session(tmp_path, "pdf", "changed", "new")
        for name in ("pdf", "changed"):
            before.activate(name)
        write(tmp_path, "changed", "another body")
        ours = session(tmp_path, "pdf", "changed", "new")
        ours.remember(before.active)
        assert ours.activate("pdf").status is ActivationStatus.ALREADY_ACTIVE
        assert "another body" in ours.activate("changed").text
        assert "the body" in ours.activate("new").text
        assert ours.active.keys() == {"pdf", "changed", "new"}
        ours.forget()
        assert "the body" in ours.activate("pdf").text

    def test_an_unknown_name_is_answered_with_those_that_exist(self, tmp_path: Path) -> None:
        answer = session(tmp_path, "a", "b").activate("../../etc/passwd")
        assert (answer.status, answer.success) == (ActivationStatus.UNKNOWN, False)
        assert answer.text == "There is no such skill. Skills: a, b."

    def test_what_failed_may_be_asked_for_again(self, tmp_path: Path) -> None:
        ours = session(tmp_path, "pdf")
        failed = ours.activate("pdf")
        assert (failed.status, failed.success) == (ActivationStatus.UNREADABLE, False)
        assert str(tmp_path) not in failed.text
        write(tmp_path, "pdf")
        assert ours.activate("pdf").success

    def test_of_two_with_one_name_the_first_counts(self, tmp_path: Path) -> None:
        write(tmp_path, "one", "first")
        write(tmp_path, "two", "second")
        twins = [
            SkillPath(name="x", anchor=tmp_path, path=f"{ROOT}/{name}/SKILL.md") for name in ("one", "two")
        ]
        assert "first" in Activations(twins).activate("x").text

    def test_the_schema_is_an_enum_of_the_names(self, tmp_path: Path) -> None:
        ours = session(tmp_path, "a", "b")
        assert ours.names == ("a", "b")
        assert ours.input_schema()["properties"]["name"]["enum"] == ["a", "b"]
        assert ours.input_schema()["additionalProperties"] is False


class TestReading:
    @pytest.mark.parametrize("path", ["/etc/passwd", "../x/SKILL.md", "a/../../b", ""])
    def test_a_path_out_of_the_anchor_is_refused(self, tmp_path: Path, path: str) -> None:
        with pytest.raises(ContentError, match="not inside"):
            read_content(tmp_path, path)

    def test_a_link_out_of_the_anchor_is_refused(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside.md"
        outside.write_text("---\n---\nsecret")
        workspace = tmp_path / "ws"
        directory = write(workspace, "pdf")
        (directory / "SKILL.md").unlink()
        (directory / "SKILL.md").symlink_to(outside)
        with pytest.raises(ContentError, match="leads out"):
            read_content(workspace, f"{ROOT}/pdf/SKILL.md")

    def test_a_pipe_is_refused_without_waiting(self, tmp_path: Path) -> None:
        directory = write(tmp_path, "pdf")
        (directory / "SKILL.md").unlink()
        os.mkfifo(directory / "SKILL.md")
        with pytest.raises(ContentError, match="regular"):
            read_content(tmp_path, f"{ROOT}/pdf/SKILL.md")

    def test_links_hidden_files_and_odd_names_are_not_listed(self, tmp_path: Path) -> None:
        directory = write(tmp_path, "pdf")
        (directory / ".git").mkdir()
        (directory / ".git" / "config").write_text("")
        (directory / "link.txt").symlink_to("/etc/passwd")
        (directory / "linked").symlink_to("/etc")
        (directory / "a\nb.txt").write_text("")
        os.mkfifo(directory / "pipe")
        (directory / "references").mkdir()
        (directory / "references" / "SKILL.md").write_text("")
        assert read_content(tmp_path, f"{ROOT}/pdf/SKILL.md").files == ("references/SKILL.md",)

    def test_the_list_is_capped_and_counts_the_rest(self, tmp_path: Path) -> None:
        directory = write(tmp_path, "pdf")
        for number in range(MAX_FILES + 7):
            (directory / f"{number:04}.txt").write_text("")
        content = read_content(tmp_path, f"{ROOT}/pdf/SKILL.md")
        assert (len(content.files), content.more_files) == (MAX_FILES, 7)
        assert "  (7 more)" in activate(tmp_path, "pdf").text

    def test_the_walk_is_bounded_in_depth_and_number(self, tmp_path: Path) -> None:
        directory = write(tmp_path, "pdf")
        deep = directory.joinpath(*"abcdefg")
        deep.mkdir(parents=True)
        for folder in (deep, directory.joinpath(*"abcde"), directory.joinpath(*"abcd")):
            (folder / "deep.txt").write_text("")
        assert read_content(tmp_path, f"{ROOT}/pdf/SKILL.md").files == ("a/b/c/d/deep.txt",)
        for number in range(2_100):
            (directory / f"{number:04}.txt").write_text("")
        content = read_content(tmp_path, f"{ROOT}/pdf/SKILL.md")
        assert len(content.files) + content.more_files <= 2_000

    def test_a_directory_that_cannot_be_opened_is_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = write(tmp_path, "pdf")
        (directory / "gone").mkdir()
        (directory / "here.txt").write_text("")
        real = os.open

        def refuse(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if path == "gone":
                raise PermissionError(13, "no")
            return real(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", refuse)
        assert read_content(tmp_path, f"{ROOT}/pdf/SKILL.md").files == ("here.txt",)

    @given(body=st.binary(max_size=300))
    def test_any_bytes_are_wrapped_once(self, tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
        workspace = tmp_path_factory.mktemp("ws")
        write(workspace, "pdf", body)
        text = activate(workspace, "pdf").text
        assert text.startswith('<skill_content name="pdf">\n')
        assert text.count("</skill_content>") == 1
        assert text.endswith("\n</skill_content>")
