"""The table of docs/workflow-file.md, from the models of the settings: `make settings` writes it anew."""

from pathlib import Path

from symphony.config import KEYS, Key

PAGE = Path(__file__).parents[1] / "docs" / "workflow-file.md"
HEAD = "| key | type | default | meaning | reload |\n|---|---|---|---|---|\n"


def current(page: str) -> str:
    """The page with the table of today's settings."""
    before, table = page.split(HEAD)
    after = table[table.index("\n\n") :]
    return f"{before}{HEAD}{chr(10).join(map(_row, KEYS.values()))}{after}"


def _row(key: Key) -> str:
    default = f"`{key.default}`" if key.default is not None else "required" if key.required else key.unset
    return f"| `{key.name}` | {key.shape} | {default} | {key.meaning} | {key.reload} |"


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
