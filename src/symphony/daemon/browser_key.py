"""The key in the state directory that signs the cookies of browsers: `browser.key`."""

from contextlib import suppress
from typing import Final

import msgspec
import structlog

from symphony.api.sign_in import BrowserKey
from symphony.daemon.state_dir import StateDirectory, read_private, write_private
from symphony.domain import DECODE_ERRORS, SymphonyError

_FILE: Final = "browser.key"
_log = structlog.get_logger(__name__)


def load_browser_key(state_dir: StateDirectory) -> BrowserKey:
    """The kept key; a new one if there is none, or none that only this user can read. Blocking."""
    with suppress(OSError, UnicodeDecodeError, SymphonyError, *DECODE_ERRORS):
        return msgspec.json.decode(read_private(state_dir.path / _FILE), type=BrowserKey)
    key = BrowserKey.new()
    save_browser_key(state_dir, key)
    return key


def save_browser_key(state_dir: StateDirectory, key: BrowserKey) -> None:
    """Keep a key. If that fails, it is in force until the daemon ends, and the log says so. Blocking."""
    path = state_dir.path / _FILE
    draft = path.with_name(f"{_FILE}.tmp")
    try:
        draft.unlink(missing_ok=True)
        write_private(draft, msgspec.json.encode(key))
        draft.replace(path)
    except OSError as error:
        _log.warning("browser_key_not_kept", path=str(path), reason=error.strerror or str(error))
