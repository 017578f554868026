"""Secrets from files and variables, `$NAME` references, paths, and masking of secret values."""

import base64
import binascii
import difflib
import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from typing_extensions import override

from symphony.config.synonyms import VENDORS
from symphony.domain import MASK, Blame, Category, Failure, SymphonyError, holds_credential, secret_parts

# --- Secrets from files ---
#
# `NAME_FILE=/path` means `NAME=<content of the file>`, as in many container images. Each file in
# `$CREDENTIALS_DIRECTORY` (systemd) sets the variable with its name; a prefix in lower case with an
# underscore is ignored (`secrets_LINEAR_API_KEY`).
#
# Both apply only to names with the ending of a secret, so not to `SSL_CERT_FILE`, and not to variables that
# other programs read themselves (`AWS_WEB_IDENTITY_TOKEN_FILE`). The variable with the path stays, because it
# shows which secrets came from files; hooks get the path but not the value.
#
# Nothing here is logged, and no message contains a value.

MAX_BYTES: Final = 64 * 1024
DIRECTORY_VARIABLE: Final = "CREDENTIALS_DIRECTORY"
EXPOSED_HINT: Final = "make it the daemon's own (chown) and closed to others: chmod 0400"

SECRET_ENDINGS: Final = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_PAT")
_FILE: Final = "_FILE"
_OF_OTHERS: Final = ("AWS_", "AZURE_", "GOOGLE_", "SSL_", "TLS_")
_CREDENTIAL: Final = re.compile(r"(?:[a-z0-9][a-z0-9.@-]*_)?([A-Z][A-Z0-9_]*)")
# Container runtimes mount secrets here, readable by all, with a mode that cannot be changed.
_MOUNTED: Final = Path("/run/secrets")


class Secrets(Struct, frozen=True, kw_only=True):
    """The environment with the secrets from files.

    Attributes:
        environment: the given variables, with `NAME` and `NAME_FILE` for each secret from a file.
        sources: the files, by the names of the variables.
        exposed: files that other users can read or change; they are reported and used.
    """

    environment: Mapping[str, str]
    sources: Mapping[str, Path]
    exposed: tuple[Path, ...]


class SecretFileError(SymphonyError):
    """Secret files cannot be used; `failures` has one for each, and the first one is also `failure`."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        super().__init__(failures[0])
        self.failures = tuple(failures)


def is_secret_variable(name: str) -> bool:
    """Whether the variable's name has the ending of a secret."""
    return name.endswith(SECRET_ENDINGS)


def variables_from_files(environment: Mapping[str, str]) -> frozenset[str]:
    """The variables whose values `read_secrets` took from files."""
    return frozenset(name for name, _ in _named(environment) if name in environment)


def read_secrets(environment: Mapping[str, str]) -> Secrets:
    """Read the secret files that variables and the directory of credentials name.

    If `NAME` is set too, it must be equal to the content of the file; so the result can be passed in again.
    An empty variable counts as unset.

    Raises:
        SecretFileError: `secret_file`, with every problem.
    """
    problems: list[Failure] = []
    sources: dict[str, Path] = {}
    values: dict[str, str] = {}
    for name, path in _offered(environment, problems):
        text = _text(name, path, problems)
        given = values.get(name) or environment.get(name)
        if text is not None and given and given != text:
            other = f"the file {sources[name]}" if name in sources else "the variable itself"
            problems.append(_twice(name, path, other))
        elif text is not None:
            sources.setdefault(name, path)
            values[name] = text
    if problems:
        raise SecretFileError(problems)
    places = {f"{name}{_FILE}": str(path) for name, path in sources.items()}
    return Secrets(
        environment={**environment, **places, **values},
        sources=sources,
        exposed=tuple(path for path in sources.values() if _exposed(path)),
    )


def _named(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The names with the paths in their `NAME_FILE`."""
    for variable, path in environment.items():
        name = variable.removesuffix(_FILE)
        if name != variable and path and is_secret_variable(name) and not name.startswith(_OF_OTHERS):
            yield name, path


def _offered(environment: Mapping[str, str], problems: list[Failure]) -> Iterator[tuple[str, Path]]:
    for name, path in _named(environment):
        yield name, Path(path)
    given = environment.get(DIRECTORY_VARIABLE)
    if not given:
        return
    try:
        entries = sorted(Path(given).iterdir())
    except OSError as error:
        problems.append(_unusable(DIRECTORY_VARIABLE, Path(given), f"cannot be read: {error.strerror}"))
        return
    for entry in entries:
        found = _CREDENTIAL.fullmatch(entry.name)
        if found is not None and is_secret_variable(found[1]):
            yield found[1], entry


def _text(name: str, path: Path, problems: list[Failure]) -> str | None:
    """The content without one line break at its end; `None` if a problem was added."""
    try:
        raw = _read(path)
    except OSError as error:
        problems.append(_unusable(name, path, f"cannot be read: {error.strerror or error}"))
        return None
    if raw is None:
        problems.append(_unusable(name, path, "is not a file"))
        return None
    if (wrong := _wrong(raw)) is not None:
        problems.append(_unusable(name, path, wrong))
        return None
    line = raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")
    return line.decode("utf-8-sig")


def _read(path: Path) -> bytes | None:
    """At most one byte more than the limit; `None` if it is not a regular file. Raises `OSError`."""
    descriptor = os.open(_place(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)


def _place(path: Path) -> str:
    return os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises for a user who does not exist


def _wrong(raw: bytes) -> str | None:
    """Why the content is not a valid secret; `None` if it is."""
    if len(raw) > MAX_BYTES:
        return f"has more than {MAX_BYTES // 1024} KiB, so it is no secret"
    if not raw.strip():
        return "is empty"
    if b"\0" in raw:
        return "is not text: it contains a NUL character"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "is no text in UTF-8"
    return None


def _exposed(path: Path) -> bool:
    """Whether users other than its owner can read or change the file."""
    real = Path(os.path.realpath(_place(path)))
    if real.is_relative_to(_MOUNTED):
        return False
    try:
        mode = real.stat().st_mode
        reached = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
    except OSError:
        return False
    return bool(mode & (stat.S_IROTH | stat.S_IWOTH)) and reached


def _twice(name: str, path: Path, other: str) -> Failure:
    return _failure(
        f"{name} is given twice, and not the same: by the file {path} and by {other}",
        f"remove one of them: {name}, {name}{_FILE}, or the credential of that name",
    )


def _unusable(name: str, path: Path, problem: str) -> Failure:
    if name == DIRECTORY_VARIABLE:
        return _failure(
            f"the directory of credentials {path} {problem}",
            f"run this as the user of the service, or without {DIRECTORY_VARIABLE}",
        )
    return _failure(
        f"the file of {name}, {path}, {problem}",
        f"put the secret there as text, readable by this user (mode 0400), or take {name}{_FILE} away",
    )


def _failure(message: str, hint: str) -> Failure:
    return Failure(
        category=Category.SECRET_FILE, blame=Blame.CONFIG, message=message, hint=hint, retryable=False
    )


# --- `$NAME`, `~` and relative paths; the environment is always an argument ---

STATE_DIR_VARIABLE: Final = "SYMPHONY_STATE_DIR"
"""The state directory of the workflow file; `symphony.daemon.admission` sets it for each.

It is the only variable that `workspace.root` may extend, as in `$SYMPHONY_STATE_DIR/workspaces`.
"""

_REFERENCE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCP_LIKE: Final = re.compile(r"[^/:]+:")
_TEMPORARY: Final = "/tmp"  # noqa: S108 - from POSIX; the workspace package checks directories below it


class ResolveError(ValueError):
    """A value cannot be resolved; the message continues a sentence that starts with the name of the key."""


class UnsetVariableError(ResolveError):
    """A required value refers to a variable, `name`, that is unset or empty."""

    def __init__(self, name: str) -> None:
        super().__init__(f"refers to ${name}, which is not set")
        self.name = name


def reference_name(value: object) -> str | None:
    """The variable a value refers to: `NAME` if the whole value is `$NAME`, else `None`."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


_NAME: Final = r"([A-Za-z_][A-Za-z0-9_]*)"
_FOREIGN_FORMS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\$\{{(?:env[:.])?{_NAME}(?::?[-=?+][^{{}}]*)?\}}",
        rf"\$?\{{\{{\s*(?:env|secrets|vars|\.Env)\.{_NAME}\s*\}}\}}",
        rf"\$?(?i:env):{_NAME}",
        rf"env\.{_NAME}",
        rf"%{_NAME}%",
        rf"\$(?:ENV)?\{{{_NAME}\}}",
        rf"""(?:env|getenv|os\.getenv)\(["']?{_NAME}["']?\)""",
        rf"""(?:ENV|os\.environ)\[["']{_NAME}["']\]""",
        rf"(?:process\.env\.|os\.environ[./]){_NAME}",
    )
)
_FOREIGN_STORE: Final = re.compile(
    r"(?:op|vault|keychain|secret|aws-sm|gcp-sm|file|env-file):\S+|\$\(.*\)|`.*`", re.DOTALL
)
_BARE_NAME: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


class ForeignReference(Struct, frozen=True):
    """A reference to a variable in another program's syntax; `name` is `None` if it is no variable.

    `problem` follows the name of the key.
    """

    name: str | None
    problem: str


def foreign_reference(value: str, *, secret: bool = False) -> ForeignReference | None:
    """Recognise `${NAME}`, `env:NAME` and the like.

    Args:
        value: the whole value.
        secret: the value should be a secret. Then the bare name of a secret variable, as after `!env`, and
            the address of a secret store count as references too.
    """
    text = value.strip()
    for pattern in _FOREIGN_FORMS:
        if found := pattern.fullmatch(text):
            form = text[: found.start(1)].strip() + "NAME" + (text[found.end(1) :].strip()[-2:])
            return ForeignReference(found[1], f"refers to a variable as {form}, which is not read")
    if not secret:
        return None
    if _BARE_NAME.fullmatch(text) and is_secret_variable(text):
        return ForeignReference(text, "is the name of a variable, without the dollar sign")
    return (
        ForeignReference(None, "the place of a secret, in the form")
        if _FOREIGN_STORE.fullmatch(text)
        else None
    )


_NEAR: Final = 0.7


def nearest_variable(name: str, environment: Mapping[str, str]) -> str | None:
    """The set variable of the same service with the most similar name; `None` if none is similar."""
    names = sorted(other for other, value in environment.items() if value and other != name)
    near = difflib.get_close_matches(name, names, n=3, cutoff=_NEAR)
    return next((other for other in near if _of_one_service(name, other)), None)


def _of_one_service(name: str, other: str) -> bool:
    """Whether neither names a service that the other does not name."""

    def of_service(words: Sequence[str], of: Sequence[str]) -> bool:
        return all(
            difflib.get_close_matches(word, of, n=1, cutoff=_NEAR) for word in words if word in VENDORS
        )

    words, others = name.lower().split("_"), other.lower().split("_")
    return of_service(words, others) and of_service(others, words)


def unset_hint(name: str, environment: Mapping[str, str]) -> str:
    """The hint for a reference to a variable that is not set."""
    near = nearest_variable(name, environment)
    meant = "" if near is None else f"did you mean ${near}, which is set? Else "
    return f"{meant}set {name} where the daemon starts, or write the value"


def referenced_variables(node: object) -> frozenset[str]:
    """Every variable that values below `node` refer to."""
    match node:
        case str():
            name = reference_name(node)
            return frozenset() if name is None else frozenset({name})
        case Mapping():
            return frozenset().union(*(referenced_variables(value) for value in node.values()))
        case list() | tuple():
            return frozenset().union(*(referenced_variables(value) for value in node))
        case _:
            return frozenset()


def default_workspace_root(environment: Mapping[str, str]) -> Path:
    """`symphony_workspaces` in the system's temporary directory."""
    temporary = Path(environment.get("TMPDIR") or _TEMPORARY).absolute()
    return temporary / "symphony_workspaces"


def root_variable(value: str) -> str | None:
    """The variable that a `workspace.root` refers to; `None` if it is literal."""
    return STATE_DIR_VARIABLE if value.startswith(f"${STATE_DIR_VARIABLE}/") else reference_name(value)


def resolve_root(value: str, *, base: Path, environment: Mapping[str, str]) -> Path | None:
    """The absolute `workspace.root`; `None` if it refers to a variable that is unset or empty.

    Raises:
        ResolveError: the text is blank or not a path.
    """
    name = root_variable(value)
    if name is None:
        return expand_path(value, base=base, environment=environment)
    start = environment.get(name, "")
    return expand_path(start + value[len(name) + 1 :], base=base, environment=environment) if start else None


def resolve_repository(value: str, *, base: Path, environment: Mapping[str, str]) -> str:
    """The `workspace.repo`: a URL or `host:path` unchanged, or an absolute local path.

    Raises:
        UnsetVariableError: it refers to a variable that is unset or empty.
        ResolveError: the text is not a path.
    """
    name = reference_name(value)
    text = value if name is None else environment.get(name, "")
    if name is not None and not text:
        raise UnsetVariableError(name)
    if text.startswith("-"):
        raise ResolveError("must not begin with a dash")
    if _URL.match(text) or _SCP_LIKE.match(text):
        return text
    return str(expand_path(text, base=base, environment=environment))


def expand_path(text: str, *, base: Path, environment: Mapping[str, str]) -> Path:
    """An absolute path without `.` and `..`. Expands `~` and `~user`; a relative path starts from `base`.

    The file system is not read, so symbolic links stay.

    Raises:
        ResolveError: the text is blank, contains a NUL character, or names a user without a home.
    """
    if not text.strip():
        raise ResolveError("must not be blank")
    if "\0" in text:
        raise ResolveError("must not contain a NUL character")
    if text.startswith("~"):
        user, _, rest = text[1:].partition("/")
        return Path(os.path.normpath(base / _home(user, environment) / rest.lstrip("/")))
    return Path(os.path.normpath(base / text))


def _home(user: str, environment: Mapping[str, str]) -> Path:
    if not user and (home := environment.get("HOME")):
        return Path(home)
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise ResolveError(f"begins with ~{user}, and that user has no home directory here") from error
    return Path(entry.pw_dir)


# --- Secrets in the front matter ---

_SECRET_KEY: Final = re.compile(
    r"(?i)(?:.*[_-])?(?:token|secret|passw(?:or)?d|pat|(?:api|access|private)[_-]?key|credentials?)s?"
)


class Secret:
    """A secret text: `str` and `repr` are masked, and only `reveal` returns it. Compared by its text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself."""
        return self._text

    @override
    def __str__(self) -> str:
        return MASK if self._text else ""

    @override
    def __repr__(self) -> str:
        return f"Secret({str(self)!r})"

    @override
    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(self._text)


def is_secret_key(name: str) -> bool:
    """Whether the key's name says that its value is a secret: `api_key`, `token`, `client_secret`."""
    return _SECRET_KEY.fullmatch(name) is not None


def mask_secrets(node: Any, *, secret: bool = False) -> Any:
    """A copy in which every literal below a secret key is a `Secret`; references are unchanged."""
    match node:
        case Mapping():
            return {
                key: mask_secrets(value, secret=secret or is_secret_key(key)) for key, value in node.items()
            }
        case list():
            return [mask_secrets(value, secret=secret) for value in node]
        case bool():
            return node
        case str() | int() | float() if secret and reference_name(node) is None:
            return Secret(str(node))
        case _:
            return node


MIN_SIGNING_BYTES: Final = 16
"""The smallest number of bytes of a key for signatures."""


def signing_key(secret: str) -> bytes:
    """The key of signatures; after `whsec_` it is in base64, as in Standard Webhooks.

    Raises:
        ValueError: it is not base64, or has fewer than `MIN_SIGNING_BYTES`. The text says which.
    """
    encoded = secret.removeprefix("whsec_")
    try:
        key = secret.encode() if encoded == secret else base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError("begins with whsec_ and is no base64") from None
    if len(key) < MIN_SIGNING_BYTES:
        raise ValueError(f"has fewer than {MIN_SIGNING_BYTES} bytes, so its signatures can be forged")
    return key


def resolve_secret(
    value: object, *, environment: Mapping[str, str], fallback: str | None = None
) -> Secret | None:
    """Resolve a secret setting of an adapter; `None` if there is no secret.

    Args:
        value: the setting: `None`, `$NAME`, or the secret itself.
        environment: where variables are looked up.
        fallback: the adapter's variable, used if the setting is missing or its variable is not set. A
            variable that is set but empty means that there is no secret.

    A reference in another program's syntax is not a secret and is never sent as one.
    """
    if isinstance(value, Secret):
        value = value.reveal()
    name = reference_name(value)
    if isinstance(value, str) and name is None:
        return None if foreign_reference(value, secret=True) else _secret(value)
    if name is not None and name in environment:
        return _secret(environment[name])
    return None if fallback is None else _secret(environment.get(fallback, ""))


def _secret(text: str) -> Secret | None:
    return Secret(text.strip()) if text.strip() else None


@dataclass(frozen=True, slots=True)
class SecretSource:
    """A value that may be a secret, and where it comes from.

    Attributes:
        setting: the dotted key with its variable, or the variable alone. It holds nothing secret.
        value: the value itself.
        named: whether the key or the variable says that it is a credential.
    """

    setting: str
    value: str = field(repr=False)
    named: bool

    @property
    def parts(self) -> frozenset[str]:
        """The parts to mask; see `symphony.domain.secrecy`."""
        return secret_parts(self.value, named=self.named)


def secret_sources(
    node: object, environment: Mapping[str, str], at: tuple[str | int, ...] = (), *, named: bool = False
) -> Iterator[SecretSource]:
    """The literal secrets in settings, and the values of the variables that they refer to.

    Args:
        node: settings, with `Secret` for literal secrets.
        environment: where variables are looked up.
        at: the location of `node`.
        named: whether a key above says that the values are credentials.
    """
    match node:
        case Secret():
            yield SecretSource(_key(at), node.reveal(), named=True)
        case Mapping():
            for key, value in node.items():
                below = named or (isinstance(key, str) and is_secret_key(key))
                yield from secret_sources(value, environment, (*at, key), named=below)
        case list() | tuple():
            for index, value in enumerate(node):
                yield from secret_sources(value, environment, (*at, index), named=named)
        case str() if (name := reference_name(node)) is not None and environment.get(name):
            named = named or is_secret_variable(name)
            yield SecretSource(f"{_key(at)} (${name})", environment[name], named=named)
        case _:
            return


def _key(at: tuple[str | int, ...]) -> str:
    return ".".join(map(str, at))


def literal_secrets(node: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Locations of plain text secrets in the file, which every session can read.

    Below `tracker`, `forge` and `notify` a secret key is enough; elsewhere the text must match the pattern
    of a credential.
    """
    match node:
        case Mapping():
            for key, value in node.items():
                yield from literal_secrets(value, (*at, key))
        case list():
            for index, value in enumerate(node):
                yield from literal_secrets(value, (*at, index))
        case str() if node.strip() and reference_name(node) is None:
            if foreign_reference(node, secret=True):
                return
            has_secret_key = at[0] in {"tracker", "forge", "notify"} and any(
                isinstance(key, str) and is_secret_key(key) for key in at
            )
            if has_secret_key or holds_credential(node):
                yield at
        case _:
            return
