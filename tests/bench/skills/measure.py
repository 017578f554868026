"""Loads of skills beside the least that any reader pays, and beside the way that most programs take."""

import glob
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from symphony.skills import DirectorySource, Loader, SkillOptions, clear_cache, load

PER_ROOT = 2_000
WORDS = re.findall(
    r"\w+",
    "extracts text tables from documents fills forms merges pages use when the user mentions reports or asks "
    "for a summary of charts release notes changelog tests reviews styles deploys migrations queries",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """A workspace with so many skills, no more than one root may hold in each."""

    workspace: Path
    roots: tuple[Path, ...]
    options: SkillOptions

    def files(self) -> Iterator[Path]:
        for root in self.roots:
            yield from root.glob("*/SKILL.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Seconds of processor time per load, the best of some; `most_read` in bytes of one file."""

    skills: int
    limit_s: float
    cold_limit_s: float
    cold_s: float
    uncached_s: float
    content_s: float
    common_s: float
    libyaml_s: float
    most_read: int

    def ratios(self) -> dict[str, float]:
        """What people want to know: against the bare limit, and against the common way."""
        return {
            "uncached_to_limit": self.uncached_s / self.limit_s,
            "by_content_to_limit": self.content_s / self.limit_s,
            "cold_to_limit": self.cold_s / self.cold_limit_s,
            "common_to_uncached": self.common_s / self.uncached_s,
            "common_to_by_content": self.common_s / self.content_s,
            "libyaml_to_uncached": self.libyaml_s / self.uncached_s,
        }


def build(place: Path, count: int) -> Shelf:
    """Skills like the published ones: some 200 characters of description, a few more keys, a body of 6 kB."""
    chance = random.Random(count)  # noqa: S311 - the same files in every run
    paths = [".symphony/skills", *(f"more-{number}" for number in range(1, -(-count // PER_ROOT)))]
    for number in range(count):
        directory = place / paths[number // PER_ROOT] / f"skill-{number:05}"
        directory.mkdir(parents=True)
        (directory / "SKILL.md").write_text(_text(chance, f"skill-{number:05}"), "utf-8")
    options = SkillOptions(extra_paths=tuple(paths[1:]))
    return Shelf(workspace=place, roots=tuple(place / path for path in paths), options=options)


def _text(chance: random.Random, name: str) -> str:
    description = " ".join(chance.choices(WORDS, k=chance.randint(18, 45)))
    lines = [f"name: {name}", f"description: {description.capitalize()}."]
    lines += chance.sample(
        [
            "license: MIT",
            "version: 1.0.2",
            "allowed-tools: Read, Grep",
            "metadata:\n  author: someone\n  risk: low",
        ],
        k=chance.randint(0, 3),
    )
    body = "# How to\n\n" + "Some advice on how it is to be done, step by step.\n" * chance.randint(60, 180)
    return "\n".join(["---", *lines, "---", body])


def bare_limit(shelf: Shelf) -> int:
    """List each root, and open, read and close every file: what no reader can do without."""
    total = 0
    for root in shelf.roots:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        with os.scandir(descriptor) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            file = os.open(f"{name}/SKILL.md", os.O_RDONLY, dir_fd=descriptor)
            total += len(os.read(file, 4_096))
            os.close(file)
        os.close(descriptor)
    return total


def common_way(shelf: Shelf, loader: Any = yaml.SafeLoader) -> list[Any]:
    """What one finds in most programs that read skills, and with the fast loader what one finds in some."""
    found = []
    for root in shelf.roots:
        for path in sorted(glob.glob(f"{root}/*/SKILL.md")):  # noqa: PTH207 - as it is usually written
            text = Path(path).read_text("utf-8")
            front = text.split("---", 2)[1]
            found.append(yaml.load(front, Loader=loader))  # noqa: S506 - both are safe
    return found


def uncached(shelf: Shelf) -> Any:
    """A load that remembers nothing of those before it."""
    clear_cache()
    return load(shelf.workspace, shelf.options)


def measure(shelf: Shelf, count: int, *, rounds: int = 5) -> Figures:
    """Every way in turn, so that a noisy moment meets them all, and the best of the rounds for each."""
    ways: dict[str, Callable[[], Any]] = {
        "limit": lambda: bare_limit(shelf),
        "uncached": lambda: uncached(shelf),
        "content": lambda: load(shelf.workspace, shelf.options),
        "common": lambda: common_way(shelf),
        "libyaml": lambda: common_way(shelf, yaml.CSafeLoader),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            best[name] = min(best[name], _seconds(way))
    assert len(load(shelf.workspace, shelf.options).skills) == count
    return Figures(
        skills=count,
        limit_s=best["limit"],
        cold_limit_s=_cold(shelf, ways["limit"]),
        cold_s=_cold(shelf, ways["uncached"]),
        uncached_s=best["uncached"],
        content_s=best["content"],
        common_s=best["common"],
        libyaml_s=best["libyaml"],
        most_read=most_read(shelf),
    )


def _seconds(way: Callable[[], Any]) -> float:
    begun = time.process_time()
    way()
    return time.process_time() - begun


def _cold(shelf: Shelf, way: Callable[[], Any]) -> float:
    """With no page of the files in memory, as far as the file system lets a program ask for that."""
    for path in shelf.files():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    begun = time.perf_counter()  # the waiting counts
    way()
    return time.perf_counter() - begun


def most_read(shelf: Shelf) -> int:
    """The most bytes that one load reads of one file."""
    sizes: dict[int, int] = {}
    opened = [0]
    real_open, real_read = os.open, os.read

    def count_open(*args: Any, **kwargs: Any) -> int:
        opened[0] += 1
        return real_open(*args, **kwargs)

    def count_read(descriptor: int, length: int) -> bytes:
        data = real_read(descriptor, length)
        sizes[opened[0]] = sizes.get(opened[0], 0) + len(data)
        return data

    os.open, os.read = count_open, count_read
    try:
        load(shelf.workspace, shelf.options)
    finally:
        os.open, os.read = real_open, real_read
    return max(sizes.values())


def missing_s(place: Path, rounds: int = 200) -> float:
    """Seconds for a workspace without skills, the median."""
    times: Sequence[float] = sorted(_seconds(lambda: load(place, SkillOptions())) for _ in range(rounds))
    return times[rounds // 2]


def composing_s(place: Path) -> tuple[float, float]:
    """Seconds of processor time to load 50 modules of instructions, and to compose those of a phase; warm."""
    entries = [f"  - {{name: m{n}, file: m{n}.md, priority: {n}, phases: [TEST]}}\n" for n in range(50)]
    (place / "manifest.yaml").write_text('version: "1"\nskills:\n' + "".join(entries))
    for number in range(50):
        (place / f"m{number}.md").write_text(f"# Module {number}\n\n" + "Do this, and then that.\n" * 12)
    source = Loader(DirectorySource(place))
    selector = source.load()
    if len(selector.compose("TEST").modules) != len(entries):
        raise AssertionError(selector.problems)
    return _best(source.load), _best(lambda: selector.compose("TEST"))


def _best(work: Callable[[], object]) -> float:
    """The least processor time of twenty rounds."""
    times = []
    for _ in range(20):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)
