import subprocess
import sys
import time

import pytest

from symphony.frontmatter import FrontMatterError, Profile, load

HOSTILE = {
    "lists": "- " * 25_000,
    "brackets": "[" * 25_000,
    "complex keys": "? " * 25_000,
    "flow maps": "{a: " * 16_000,
    "lists below a key": "a: " + "[" * 25_000,
    "dashes below a key": "a:\n" + "- " * 25_000,
    "billion laughs": "a: &a [x,x]\n"
    + "".join(f"{c}: &{c} [*{b},*{b}]\n" for b, c in zip("abcdefghij", "bcdefghijk", strict=True)),
    "alias as value": "name: &n x\ndescription: *n\n",
    "list inside itself": "a: &a [*a]\n",
    "many values": "a: [" + "x," * 20_000 + "]\n",
    "many keys": "".join(f"k{n}:\n" for n in range(9_000)),
    "half a pair": 'a: "\\ud83d\\ude00"\n',
    "quotes": "a: " + '"' * 50_001,
    "anchors": "a: " + "&x " * 20_000,
    "tags": "a: " + "!x " * 20_000,
    "indents": "\n".join(" " * n + "a:" for n in range(340)),
}


@pytest.mark.usefixtures("parser")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_front_matter_is_refused_at_once(name: str) -> None:
    start = time.thread_time()
    with pytest.raises(FrontMatterError):
        load(HOSTILE[name].encode(), profile=Profile.TEXT)
    assert time.thread_time() - start < 20


@pytest.mark.parametrize(
    "name", ["lists", "brackets", "complex keys", "flow maps", "billion laughs", "indents"]
)
def test_the_process_survives_hostile_front_matter(name: str) -> None:
    program = (
        "import sys\n"
        "from symphony.frontmatter import FrontMatterError, Profile, load\n"
        "front = sys.stdin.buffer.read()\n"
        "for profile in Profile:\n"
        "    try:\n"
        "        load(front, profile=profile)\n"
        "    except FrontMatterError as error:\n"
        "        print('alive', error.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=HOSTILE[name].encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"alive") >= 1


def test_a_tag_constructs_nothing() -> None:
    front = b"a: !!python/object/apply:os.abort []\nb: !!python/name:os.abort x\n"
    assert load(front, profile=Profile.CORE).value == {"a": [], "b": "x"}


def test_two_hundred_thousand_keys_are_too_large() -> None:
    front = b"".join(b"k%d: v\n" % n for n in range(200_000))
    start = time.thread_time()
    with pytest.raises(FrontMatterError, match="front_matter_too_large"):
        load(front, profile=Profile.TEXT)
    assert time.thread_time() - start < 20  # processor time, as above


@pytest.mark.parametrize("comment", ["# words\n", "#\n"])
def test_sixty_kilobytes_of_comments_load_fast(comment: str) -> None:
    front = (comment * 60_000)[:60_000] + "\na: 1\n"
    start = time.thread_time()
    assert load(front.encode(), profile=Profile.TEXT).value == {"a": "1"}
    assert time.thread_time() - start < 20  # processor time; the failures this guards against take minutes
