"""A problem with a file, in one form for all linters, documents and comments."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

_Position = Annotated[int, Meta(ge=1)]


class Severity(StrEnum):
    """How bad a problem is: a file with an error is not used."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Problem(Struct, frozen=True, kw_only=True):
    """What is wrong with a file, where, and what to do; contains no text of the file."""

    path: Annotated[str, Meta(description="As a person names the file, with `/`; untrusted text.")]
    line: Annotated[_Position | None, Meta(description="Null if it has no position in the file.")]
    column: _Position | None
    severity: Severity
    code: Annotated[
        str, Meta(description="A stable name.", extra_json_schema={"pattern": "^[a-z][a-z0-9_]*$"})
    ]
    message: Annotated[str, Meta(description="One sentence.")]
    hint: Annotated[str, Meta(description="What to do next; may be empty.")]
    scope: Annotated[
        str | None,
        Meta(
            description="Where a file of skills comes from: project, user, extra or library. "
            "Its path is relative to the workspace; in the scope `user`, to the path of the settings."
        ),
    ] = None

    @property
    def where(self) -> str:
        """The path with line and column if they are known: `path:line:column`."""
        return ":".join([self.path, *(str(one) for one in (self.line, self.column) if one is not None)])


class Finding(Struct, frozen=True, kw_only=True):
    """A finding about a SKILL.md that a person should know before storing it."""

    severity: Annotated[
        str,
        Meta(description="error: it cannot be stored; danger: read it carefully; warning or info."),
    ]
    code: str
    line: Annotated[int | None, Meta(description="The line in the future SKILL.md.")]
    message: str
    hint: str | None
