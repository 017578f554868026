"""What is loaded when a workflow is served, and that looking away from the rest leaves no trace."""

import gc
import sys

import pytest

from harness.programs import printed
from symphony.cli.lean import lean_imports

NEEDLESS = (
    "rich.console", "httpx", "jinja2", "pygments", "starlette", "uvicorn", "babel", "pytz",
    "importlib.metadata", "email.message", "psutil", "dateutil.parser", "ctypes", "pydantic",
    "pydantic_core.core_schema", "html.parser", "liquid.extra",
)  # fmt: skip


def test_serving_loads_neither_a_screen_nor_the_web_nor_calendars_before_it_needs_them() -> None:
    program = (
        "from symphony.cli.lean import lean_imports\n"
        "with lean_imports():\n    import symphony.cli.serving\n"
        f"import sys; print([name for name in {NEEDLESS!r} if name in sys.modules])\n"
        "import rich.console; print('rich' in sys.modules)\n"
    )
    assert printed(program).split("\n")[:2] == ["[]", "True"]


def test_asking_a_daemon_loads_neither_its_log_nor_its_scheduler_nor_a_screen() -> None:
    needless = ("structlog", "symphony.scheduler", "pydantic_core", "rich.console")
    program = (
        "from symphony.cli.lean import lean_imports\n"
        "with lean_imports():\n    import symphony.cli.facts\n"
        f"import sys; print([name for name in {needless!r} if name in sys.modules])\n"
    )
    assert printed(program) == "[]\n"


def test_afterwards_everything_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rich", raising=False)
    with lean_imports():
        assert sys.modules["rich"] is None
        assert not gc.isenabled()
    assert "rich" not in sys.modules
    assert gc.isenabled()


def test_what_is_loaded_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = object()
    monkeypatch.setitem(sys.modules, "rich", loaded)
    with lean_imports():
        assert sys.modules["rich"] is loaded
    assert sys.modules["rich"] is loaded


def test_a_prompt_is_rendered_as_ever_without_the_set_of_extras() -> None:
    program = (
        "from pathlib import Path\n"
        "from symphony.cli.lean import lean_imports\n"
        "with lean_imports():\n"
        "    from symphony.workflow.template import _ENVIRONMENT, PromptTemplate\n"
        "import liquid, sys; print('babel' in sys.modules or 'liquid.extra' in sys.modules)\n"
        "print(sorted(_ENVIRONMENT.filters) == sorted([*liquid.Environment().filters, 'fence']))\n"
        "print(None in _ENVIRONMENT.filters.values())\n"
    )
    assert printed(program).split() == ["False", "True", "False"]


def test_the_types_of_the_engine_are_there_for_whoever_asks() -> None:
    program = (
        "import sys\n"
        "from symphony.cli.lean import lean_imports\n"
        "with lean_imports():\n"
        "    from symphony.workflow.engine import typed\n"
        "    from symphony.workflow.settings import PollingSettings\n"
        "print('pydantic_core.core_schema' in sys.modules)\n"
        "from pydantic_core import SchemaValidator, core_schema\n"
        "print(SchemaValidator(core_schema.int_schema()).validate_python('5'))\n"
        "print(typed(PollingSettings, {'interval_ms': 6}).interval_ms)\n"
        "import pydantic\n"
        "print(pydantic.TypeAdapter(list[int]).validate_python(['7']))\n"
    )
    assert printed(program).split() == ["False", "5", "6", "[7]"]


def test_tags_are_taken_out_as_ever_and_extras_can_be_had_afterwards() -> None:
    program = (
        "import sys\n"
        "from symphony.cli.lean import lean_imports\n"
        "with lean_imports():\n"
        "    from symphony.workflow.template import _ENVIRONMENT\n"
        "print('html.parser' in sys.modules)\n"
        "for _ in range(2):\n"
        "    print(_ENVIRONMENT.from_string(\"{{ '<b>bold</b><i>!</i>' | strip_html }}\").render())\n"
        "from liquid.extra import add_tags_and_filters\n"
        "from liquid.builtin.loaders.package_loader import PackageLoader\n"
        "print(add_tags_and_filters is not None, PackageLoader is not None)\n"
    )
    assert printed(program).split() == ["False", "bold!", "bold!", "True", "True"]


def test_a_date_is_read_as_ever() -> None:
    program = (
        "import sys\n"
        "from symphony.cli.lean import lean_imports\n"
        "with lean_imports():\n"
        "    from symphony.workflow.template import _ENVIRONMENT\n"
        "for _ in range(2):\n"
        "    print(_ENVIRONMENT.from_string(\"{{ 'March 14, 2026' | date: '%Y-%m-%d' }}\").render())\n"
        "    print('dateutil.parser' in sys.modules)\n"
    )
    assert printed(program).split() == ["2026-03-14", "True"] * 2
