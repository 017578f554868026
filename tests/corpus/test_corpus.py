"""Published skills: none crashes, nearly all load, and their texts are those of `yaml.safe_load`.

`SYMPHONY_SKILL_CORPUS` names a tree with `SKILL.md` files; `SEED` and `CORPUS_FILES` choose a sample of it.
The thresholds are those of 123,190 files of 68 public repositories, a little lowered.
"""

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import yaml

from symphony.skills import Code, Severity, SkillOptions, SkillSet, Validation, load

CORPUS = os.environ.get("SYMPHONY_SKILL_CORPUS")
SEED = int(os.environ.get("SEED", "1"))
FILES = int(os.environ.get("CORPUS_FILES", "5000"))
ACCEPTED = {Validation.LENIENT: 0.955, Validation.STRICT: 0.33}
FIXTURES = Path(__file__).parents[1] / "unit" / "skills" / "found"


def _load(place: Path, file: Path, profile: Validation) -> SkillSet:
    """One file, alone in a directory of the same name: what lies beside and below it is another's concern."""
    copy = place / file.parent.name / "SKILL.md"
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(file.read_bytes())
    found = load(place, SkillOptions(path=copy.parent.name, validation=profile))
    errors = [one for one in found.problems if one.severity is Severity.ERROR]
    assert len(found.skills) + len(errors) == 1, file
    return found


def _differs(found: SkillSet, file: Path) -> bool:
    """Whether the description is another than `safe_load` reads; where that fails, nobody knows better."""
    if any(one.code is Code.REPAIRED_YAML for one in found.problems) or not found.skills:
        return False
    try:
        text = file.read_text("utf-8-sig").split("---", 2)[1]
        theirs = yaml.safe_load(text[: text.rfind("\n") + 1])
    except (yaml.YAMLError, ValueError, LookupError):
        return False
    value = theirs.get("description") if isinstance(theirs, dict) else None
    mine = found.skills[0].description
    return isinstance(value, str) and bool(value.strip()) and mine != value.strip()


@pytest.mark.skipif(
    not CORPUS, reason="a corpus of skills is not part of the repository (set SYMPHONY_SKILL_CORPUS)"
)
@pytest.mark.timeout(3_600)
def test_published_skills_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = sorted(path for path in Path(str(CORPUS)).rglob("SKILL.md") if path.is_file())
    assert every, "the corpus is empty"
    files = Random(SEED).sample(every, min(FILES, len(every)))  # noqa: S311 - to be drawn again
    accepted: Counter[Validation] = Counter()
    codes: Counter[str] = Counter()
    different = []
    for number, file in enumerate(files):
        for profile in Validation:
            found = _load(tmp_path / str(number), file, profile)
            accepted[profile] += len(found.skills)
            if profile is Validation.LENIENT:
                codes.update({f"{one.severity.value} {one.code}" for one in found.problems})
                if _differs(found, file):
                    different.append(file)
    with capsys.disabled():
        print(f"\n{len(files)} of {len(every)} files of {CORPUS}, seed {SEED}")  # noqa: T201 - the table
        for name, number in [*accepted.most_common(), *codes.most_common()]:
            print(f"{number:8} {number / len(files):7.2%}  {name}")  # noqa: T201 - as above
    assert different == []
    for profile, share in ACCEPTED.items():
        assert accepted[profile] / len(files) >= share, profile


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.glob("*.md")))
def test_files_of_our_own_give_a_skill_or_one_error(tmp_path: Path, name: str) -> None:
    for profile in Validation:
        _load(tmp_path, FIXTURES / name, profile)
