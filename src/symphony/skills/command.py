"""The commands list, check, prompt and show over a directory of skills: no daemon, tracker or settings."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from symphony.skills.catalog import render
from symphony.skills.detail import detail, detail_lines
from symphony.skills.digest import digests_of
from symphony.skills.lint import github_lines, is_failure, summary, text_lines
from symphony.skills.loader import load
from symphony.skills.model import DEFAULT_PATH, Format, Severity, SkillOptions, SkillSet, Validation
from symphony.skills.shapes import block_shape, listing_shape, problems_shape
from symphony.skills.text import clean

__all__ = ["main"]

_EXAMPLES: Final = """examples:
  python -m symphony.skills list
  python -m symphony.skills check --strict ~/src/my-skills
  python -m symphony.skills check --format github
  python -m symphony.skills prompt --format xml --max-chars 4000
  python -m symphony.skills show release-notes

exit codes: 0 done, 1 list or check found errors or show found nothing, 2 the command line is wrong"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and say how it went; the result goes to stdout, the rest to stderr."""
    given = _parser().parse_args(arguments)
    if not Path(given.directory).is_dir():
        sys.stderr.write(f"error: {clean(given.directory)} is not a directory\n")
        sys.stderr.write("hint: name a repository, a directory of skills, or one skill\n")
        return 2
    options = _options(given)
    run: Callable[[argparse.Namespace, SkillOptions, SkillSet], int] = given.run
    return run(given, options, load(Path(given.directory), options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m symphony.skills",
        description="Skills of a repository, as a session would get them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "list", _list, "the skills, where they come from and whether they are listed")
    check = _add(commands, "check", _check, "what is wrong with them, in the style of a linter")
    check.add_argument("--format", choices=("text", "json", "github"), default="text")
    check.add_argument("--all", action="store_true", help="also what is merely worth knowing")
    prompt = _add(commands, "prompt", _prompt, "exactly the block that goes into a prompt")
    prompt.add_argument("--format", choices=[one.value for one in Format], default=Format.COMPACT.value)
    prompt.add_argument("--max-skills", type=int, default=SkillOptions().max_skills_in_prompt, metavar="N")
    prompt.add_argument("--max-chars", type=int, default=SkillOptions().max_prompt_chars, metavar="N")
    _add(commands, "show", _show, "everything that is known of one skill", names=("name",))
    return parser


def _add(
    commands: Any, name: str, run: Callable[..., int], summary: str, names: Sequence[str] = ()
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    for one in names:
        parser.add_argument(one, metavar=one.upper())
    parser.add_argument(
        "directory", nargs="?", default=".", metavar="DIR", help="a repository, a directory of skills, or one"
    )
    parser.add_argument("--path", help="where the skills are, below DIR")
    parser.add_argument("--user-path", metavar="DIR", help="a second root, which the first one outdoes")
    parser.add_argument("--extra-path", action="append", default=[], metavar="PATH", help="a further root")
    parser.add_argument("--strict", action="store_true", help="the strict profile; a warning is a failure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run, format="", max_skills=None, max_chars=None)
    return parser


def _options(given: argparse.Namespace) -> SkillOptions:
    """The options of the command line; a directory without the usual place is one of skills itself."""
    usual = (Path(given.directory) / DEFAULT_PATH).exists()
    usual_options = SkillOptions()
    prompt = given.max_skills is not None
    return SkillOptions(
        path=given.path if given.path is not None else DEFAULT_PATH if usual else ".",
        user_path=given.user_path,
        extra_paths=tuple(given.extra_path),
        validation=Validation.STRICT if given.strict else Validation.LENIENT,
        format=Format(given.format) if prompt else Format.COMPACT,
        max_skills_in_prompt=given.max_skills if prompt else usual_options.max_skills_in_prompt,
        max_prompt_chars=given.max_chars if prompt else usual_options.max_prompt_chars,
    )


def _list(given: argparse.Namespace, options: SkillOptions, skill_set: SkillSet) -> int:
    block = render(skill_set, options)
    if given.json:
        found = digests_of(Path(given.directory), skill_set.skills, options)
        _print_json(listing_shape(skill_set, block, options, digests=found))
    else:
        for skill in skill_set.skills:
            mark = "" if skill.name in block.listed else " (not listed)"
            _say(clean(f"{skill.name}{mark}  {skill.scope.value}  {skill.path}"))
        _sum_up(skill_set)
    return 1 if is_failure(skill_set.problems, strict=False) else 0


def _check(given: argparse.Namespace, _: SkillOptions, skill_set: SkillSet) -> int:
    problems = [one for one in skill_set.problems if given.all or one.severity is not Severity.INFO]
    if given.json or given.format == "json":
        _print_json(problems_shape(skill_set.problems))
    else:
        lines = github_lines if given.format == "github" else text_lines
        for line in lines(problems, given.directory):
            _say(line)
        _sum_up(skill_set)
    return 1 if is_failure(problems, strict=given.strict) else 0


def _prompt(given: argparse.Namespace, options: SkillOptions, skill_set: SkillSet) -> int:
    block = render(skill_set, options)
    if given.json:
        return _print_json(block_shape(skill_set, block))
    if block.text is not None:
        _say(block.text)
    return 0


def _show(given: argparse.Namespace, options: SkillOptions, skill_set: SkillSet) -> int:
    shown = detail(Path(given.directory), skill_set, given.name, render(skill_set, options), options)
    if shown is None:
        sys.stderr.write(f"error: there is no skill {clean(given.name)}\n")
        sys.stderr.write("hint: `list` names the skills, `check` says why one is left out\n")
        return 1
    if given.json:
        return _print_json(shown)
    for line in detail_lines(shown, skill_set, given.directory):
        _say(line)
    return 0


def _sum_up(skill_set: SkillSet) -> None:
    """On stderr: what is on stdout is the result."""
    sys.stderr.write(f"{summary(skill_set)}\n")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _print_json(shape: dict[str, Any]) -> int:
    _say(json.dumps(shape, indent=2))
    return 0
