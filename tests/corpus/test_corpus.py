"""Every SKILL.md below the directory that `SYMPHONY_SKILL_CORPUS` names: none crashes, nearly all load."""

import os
from collections import Counter
from pathlib import Path

import pytest

from symphony.skills import Memory, Severity, SkillOptions, Validation, load

CORPUS = os.environ.get("SYMPHONY_SKILL_CORPUS")
pytestmark = pytest.mark.skipif(
    not CORPUS, reason="a corpus of skills is not part of the repository (set SYMPHONY_SKILL_CORPUS)"
)


@pytest.mark.timeout(3_600)
def test_published_skills_load(capsys: pytest.CaptureFixture[str]) -> None:
    corpus = Path(str(CORPUS))
    codes: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    files = sorted(path.parent for path in corpus.rglob("SKILL.md"))
    for directory in files:
        for profile in Validation:
            options = SkillOptions(path=directory.relative_to(corpus).as_posix(), validation=profile)
            found = load(corpus, options, memory=Memory(max_entries=0))
            errors = [one for one in found.problems if one.severity is Severity.ERROR]
            assert len(found.skills) + len(errors) == 1, directory
            accepted[profile.value] += len(found.skills)
            clean = bool(found.skills) and all(one.severity is Severity.INFO for one in found.problems)
            if profile is Validation.LENIENT:
                accepted["without a warning"] += clean
                codes.update({f"{one.severity.value} {one.code.value}" for one in found.problems})
    with capsys.disabled():
        print(f"\n{len(files)} files of {corpus}")  # noqa: T201 - the table is what one runs this for
        for name, number in [*accepted.most_common(), *codes.most_common()]:
            print(f"{number:8} {number / max(len(files), 1):7.2%}  {name}")  # noqa: T201 - as above
    assert files, "the corpus is empty"
    assert accepted["lenient"] / len(files) >= 0.975
