"""Patterns that are compiled when they are used: they find what they would have found."""

import re

import pytest

from harness.programs import printed
from symphony.cli.late_patterns import late_patterns


def test_patterns_of_libraries_are_not_compiled_while_they_load_and_match_as_ever() -> None:
    program = (
        "import re\n"
        "from symphony.cli.late_patterns import late_patterns\n"
        "with late_patterns():\n"
        "    from liquid.builtin.expressions.path import RE_PROPERTY as path\n"
        "    from liquid.context import RE_PROPERTY as name\n"
        "    from yaml.reader import Reader\n"
        "late = (path, name, Reader.NON_PRINTABLE)\n"
        "print(any(isinstance(one, re.Pattern) for one in late))\n"
        "print(path.fullmatch('a-b').group(), name.fullmatch('a b'))\n"
        "print(Reader.NON_PRINTABLE.search('a\\x00').start())\n"
        "print(Reader('a: b').prefix(4))\n"
    )
    assert printed(program).splitlines() == ["False", "a-b None", "1", "a: b"]


def test_patterns_of_ours_are_compiled_when_they_are_asked_and_not_again() -> None:
    program = (
        "import re\n"
        "from symphony.cli.late_patterns import late_patterns\n"
        "with late_patterns():\n"
        "    from symphony.domain import ids\n"
        "    print(isinstance(ids._UNSAFE, re.Pattern), ids.workspace_key('SYM-1'))\n"
        "re.compile = None\n"
        "print(ids.workspace_key('SYM/1')[:7])\n"
    )
    assert printed(program).split() == ["False", "SYM-1", "SYM_1--"]


def test_everybody_else_gets_patterns_and_afterwards_all_do() -> None:
    compiler = re.compile
    with late_patterns():
        assert re.compile("a+", re.IGNORECASE).fullmatch("AA")
        with pytest.raises(re.error):
            re.compile("(")
    assert re.compile is compiler
