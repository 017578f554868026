"""Reads instructions from their source, in bounded time, and keeps the last good copy in the state directory.

<state dir>/instructions/<digest of the source>.json
"""

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, urljoin

import anyio
import msgspec
import structlog
from msgspec import Struct

from symphony import skills, to_thread
from symphony.config import InstructionsSettings
from symphony.files import write_atomic
from symphony.http.exchange import origin_of
from symphony.http.transport import ExchangeError, HttpxTransport, Send

SHARED_S: Final = 30.0
"""How long runs share the answer of a server, including a failure."""
_KEPT_S: Final = 30 * 24 * 3_600
_MAX_REDIRECTS: Final = 3
_MAX_ETAG_CHARS: Final = 256
_OK, _NOT_MODIFIED = 200, 304
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_log = structlog.get_logger(__name__)


class StoredFile(Struct, frozen=True):
    """A file of the last good copy, with the ETag of a remote one."""

    data: bytes
    etag: str | None = None


class StoredCopy(Struct, frozen=True):
    """A manifest and its modules, by their paths beside the manifest."""

    files: dict[str, StoredFile]

    def source(self, shown: str) -> skills.FilesSource:
        """The files as a source; `shown` is their place in problems."""
        return skills.FilesSource({path: file.data for path, file in self.files.items()}, shown)


class _FetchError(Exception):
    """A file was not received; the text continues "It cannot be read: "."""


def unavailable(place: str, reason: str) -> skills.Problem:
    """The problem that a source cannot be read at all."""
    return skills.instruction_problem(
        skills.InstructionCode.UNAVAILABLE, place, message=f"It cannot be read: {reason}."
    )


class InstructionStore:
    """Reads the instructions of one workflow file and keeps the last good copies.

    Args:
        settings: `agent.instructions`, with a source.
        base_dir: the directory of the workflow file, where a relative `fallback` starts.
        copies: the directory of the last good copies; it need not exist.
        carried: the files of a remote source that need not be requested.
    """

    def __init__(
        self,
        settings: InstructionsSettings,
        *,
        base_dir: Path,
        copies: Path,
        carried: StoredCopy | None = None,
    ) -> None:
        self._settings = settings
        self._base_dir = base_dir
        self._copies = copies
        self._carried = carried
        timeout_s = settings.fetch_timeout_ms / 1_000
        self._transport = HttpxTransport(
            connect_s=timeout_s, read_s=timeout_s, total_s=timeout_s, max_bytes=skills.MAX_FILE_BYTES
        )
        self._fetching = anyio.Lock()
        self._fetched: tuple[float, StoredCopy | skills.Problem] | None = None

    # --- remote --------------------------------------------------------------------------------------

    async def fetch(self) -> StoredCopy | skills.Problem:
        """The files of the remote source, or why there are none, within `fetch_timeout_ms`.

        Calls within 30 seconds share one answer.
        """
        if self._carried is not None:
            return self._carried
        timeout_s = self._settings.fetch_timeout_ms / 1_000
        try:
            with anyio.fail_after(timeout_s):
                async with self._fetching:
                    if self._fetched is not None and time.monotonic() < self._fetched[0]:
                        return self._fetched[1]
                    found = await self._request()
        except TimeoutError:
            reason = f"no complete answer within {timeout_s:g} seconds"
            found = unavailable(self._settings.url or "", reason)
        self._fetched = (time.monotonic() + SHARED_S, found)
        return found

    async def _request(self) -> StoredCopy | skills.Problem:
        url = self._settings.url or ""
        kept = await to_thread.run_sync(self.last_good)
        known = {} if kept is None else kept.files
        try:
            async with self._transport.session(url) as send:
                files = {skills.MANIFEST_FILE: await _get(send, url, known.get(skills.MANIFEST_FILE))}
                for path in skills.Manifest.parse(files[skills.MANIFEST_FILE].data).files:
                    if path not in files:
                        files[path] = await _get(send, urljoin(url, quote(path)), known.get(path))
                    if sum(len(file.data) for file in files.values()) > skills.MAX_TOTAL_BYTES:
                        return unavailable(url, "all files together are larger than 1 MiB")
        except (ExchangeError, _FetchError) as error:
            return unavailable(url, str(error))
        return StoredCopy(files)

    async def carry(self) -> Mapping[str, bytes] | None:
        """The files of a remote source for a run on a host; `None` if they are unknown."""
        if self._settings.source != "remote":
            return None
        found: StoredCopy | skills.Problem | None = await self.fetch()
        if not isinstance(found, StoredCopy):
            found = await to_thread.run_sync(self.last_good)
        return None if found is None else {path: file.data for path, file in found.files.items()}

    def fallback(self) -> bytes | None:
        """The file of `fallback`, if it can be read; blocking."""
        if self._settings.fallback is None:
            return None
        try:
            return (self._base_dir / Path(self._settings.fallback).expanduser()).read_bytes()[
                : skills.MAX_FILE_BYTES
            ]
        except OSError:
            return None

    # --- loading; blocking ---------------------------------------------------------------------------

    def load(
        self, found: Path | StoredCopy | skills.Problem, *, shared: bool, keep: bool = True
    ) -> skills.Selector:
        """The instructions; with `keep`, valid instructions become the last good copy.

        Args:
            found: the directory with the `path` of a local source, the files of a remote one, or why there is
                neither. Embedded modules ignore it.
            shared: whether all runs read the same files. Otherwise the last good copy belongs to this
                directory, so that no branch can replace the instructions of another.
            keep: false for a preview.
        """
        if self._settings.source == "embedded":
            return self._loader(skills.EMBEDDED_SOURCE, None).load()
        file = self._copy_file(None if shared or not isinstance(found, Path) else found)
        kept = self._read_copy(file)
        selector = self._loader(self._source(found), kept).load()
        if keep and selector.origin is skills.InstructionOrigin.SOURCE:
            files = {path: StoredFile(data) for path, data in selector.files.items()}
            copy = found if isinstance(found, StoredCopy) else StoredCopy(files)
            if copy != kept:
                self._write_copy(file, copy)
        return selector

    def last_good(self) -> StoredCopy | None:
        """The last good copy of a remote source."""
        return self._read_copy(self._copy_file(None))

    def _source(self, found: Path | StoredCopy | skills.Problem) -> skills.InstructionSource | skills.Problem:
        match found:
            case Path():
                return skills.DirectorySource(found, self._settings.path)
            case StoredCopy():
                return found.source(urljoin(self._settings.url or "", "."))
        return found

    def _loader(
        self, source: skills.InstructionSource | skills.Problem, kept: StoredCopy | None
    ) -> skills.Loader:
        settings = self._settings
        fallback = None if settings.fallback is None else Path(settings.fallback).expanduser()
        return skills.Loader(
            source,
            last_good=None if kept is None else kept.source("last good copy: "),
            fallback=None if fallback is None else self._base_dir / fallback,
            sha256=settings.sha256,
            max_chars=settings.max_chars,
        )

    # --- last good copies; blocking ------------------------------------------------------------------

    def _copy_file(self, tree: Path | None) -> Path:
        """The file of the last good copy, of a directory or shared by all runs."""
        settings = self._settings
        place = settings.url if settings.source == "remote" else settings.path
        key = msgspec.json.encode([settings.source, place, None if tree is None else os.fsencode(tree)])
        return self._copies / f"{hashlib.sha256(key).hexdigest()[:32]}.json"

    @staticmethod
    def _read_copy(file: Path) -> StoredCopy | None:
        try:
            return msgspec.json.decode(file.read_bytes(), type=StoredCopy)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("instructions_not_kept", path=str(file), reason=type(error).__name__)
            return None

    def _write_copy(self, file: Path, copy: StoredCopy) -> None:
        """Replace a copy, and remove copies that were not replaced for 30 days."""
        try:
            self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(file, msgspec.json.encode(copy))
            oldest = time.time() - _KEPT_S
            for other in self._copies.iterdir():
                if other != file and other.lstat().st_mtime < oldest:
                    other.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("instructions_not_kept", path=str(file), reason=error.strerror)


async def _get(send: Send, address: str, known: StoredFile | None) -> StoredFile:
    """A file; the known one if the server confirms it. Raises `_FetchError` or `ExchangeError`."""
    headers = {"user-agent": "symphony-orchestrator"}
    if known is not None and known.etag is not None:
        headers["if-none-match"] = known.etag
    origin = origin_of(address)
    for _ in range(_MAX_REDIRECTS + 1):
        reply = await send("GET", address, headers, None)
        if reply.status == _NOT_MODIFIED and known is not None:
            return known
        if reply.status in _REDIRECTS:
            address = urljoin(address, reply.headers.get("location", ""))
            try:
                inside = origin_of(address) == origin
            except ValueError:
                inside = False
            if not inside:
                raise _FetchError("it redirects to another host")
            continue
        if reply.status != _OK:
            raise _FetchError(f"the server answers with status {reply.status}")
        if reply.content is None:
            raise _FetchError("a file is larger than 64 KiB")
        if "html" in reply.headers.get("content-type", "").lower():
            raise _FetchError("the server answers with a web page")
        etag = reply.headers.get("etag", "")
        usable = etag and len(etag) <= _MAX_ETAG_CHARS and etag.isascii() and etag.isprintable()
        return StoredFile(data=reply.content, etag=etag if usable else None)
    raise _FetchError("it redirects too often")
