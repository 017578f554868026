"""Finds what a person should read carefully before accepting a change of a skill. Pure.

Many sessions obey a skill, and its author may have read or copied texts of others. The gate finds typical
parts of harmful texts: addresses, commands that run downloads, front matter keys that grant rights, hidden
characters and secrets. It cannot find everything. A person sees the findings and decides, but a text with a
finding in `REFUSED` never becomes a version. Only texts that consist of allowed parts become versions without
a person: see `needs_no_person`.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from symphony.characters import has_hidden, has_ignorable
from symphony.library.model import LibraryError, SkillText
from symphony.library.provenance import unmarked
from symphony.problem import Finding

REFUSED: Final = frozenset({"hidden_characters", "secret"})
"""Codes of findings that no skill needs."""
MAX_CHANGED_LINES: Final = 200
_MAX_PER_CODE: Final = 20
_QUIET_KEYS: Final = frozenset({"license", "compatibility", "metadata"})
# Variation selectors of East Asian letters; each can hide a byte.
_VARIANTS: Final = re.compile("[\U000e0100-\U000e01ef]")
_ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]{0,30}://[^\s<>\"'`)\]]+"
    r"|(?<![\w:/])//\w[^\s<>\"'`)\]]*"
    r"|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)*"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?"
    r"|\b[a-z][\w.-]{0,100}:\d{2,5}\b"
    r"|\b(?:[\w-]{1,63}\.){1,9}(?:com|net|org|edu|gov|info|biz|io|dev|app|ai|co|cloud|xyz|site|online|top|ru|cn|de"
    r"|uk|fr|eu|example)\b(?:/[^\s<>\"'`)\]]*)?",
    re.IGNORECASE,
)
_GET: Final = r"\b(?:curl|wget|fetch|base64|iwr|irm|aria2c|Invoke-WebRequest|Invoke-RestMethod)\b"
_SHELL: Final = r"(?:(?:ba|z|da|k|fi|a)?sh|python[\d.]*|perl|ruby|node|deno|bun|php|pwsh|iex)\b"
_PIPE = re.compile(
    rf"{_GET}[^\n]{{0,300}}(?:\||;|&&|\|\|)\s*(?:sudo\s+|exec\s+|env\s+)?(?:[\w./~-]{{0,60}}/)?(?:{_SHELL}|source\b|\.\s|chmod\b|\./)"
    rf"|\b(?:{_SHELL}\s+-c|\beval|\bsource)\s+[\"']?(?:\$\(|`)\s*{_GET}"
    rf"|<\(\s*{_GET}"
    r"|\b(?:npx|bunx|pnpx|uvx|pipx\s+run|(?:npm|pnpm|yarn|bun)\s+(?:exec|dlx|x|i|install|add|create)|go\s+(?:run|install)"
    r"|(?:pip[\d.]*|pipx|uv|uv\s+pip|gem|cargo|brew|apt|apt-get|dnf|yum|apk|conda)\s+(?:install|add|tool))\s+\S",
    re.IGNORECASE,
)


def gate(before: SkillText | None, after: SkillText, mask: Callable[[str], str]) -> tuple[Finding, ...]:
    """New and possibly harmful parts of `after`; `mask` masks known secrets."""
    old = frozenset(() if before is None else before.file().decode().split("\n"))
    known = {address for line in old for address in _ADDRESS.findall(line)}
    new = [
        (number, line) for number, line in enumerate(after.file().decode().split("\n"), 1) if line not in old
    ]
    found: dict[str, list[Finding]] = {}

    def add(code: str, line: int | None, message: str, hint: str) -> None:
        found.setdefault(code, []).append(
            Finding(severity="danger", code=code, line=line, message=message, hint=hint)
        )

    begun = ""  # the end of a command line that continues in the next line
    for number, line in new:
        if has_hidden(line.removesuffix("\r")) or _VARIANTS.search(line):
            add("hidden_characters", number, "It has invisible characters.", "Look at the escapes.")
        if mask(line) != line:
            add("secret", number, "It has a secret of this daemon.", "Reject it, and replace the secret.")
        command = begun + line
        begun = command[:-1] if line.endswith("\\") else ""
        runs = _PIPE.search(command) is not None
        if runs:
            add("pipe_to_shell", number, "It runs code from another place.", "Read the command.")
        for address in _ADDRESS.findall(line):
            if address not in known and (not runs or "://" in address):
                add("new_address", number, f"It names {address[:200]}.", "Look where it leads.")
    for code, key, message, hint in _of_keys(before, after):
        at = next((number for number, line in new if line.startswith(f"{key}:")), None)
        add(code, at, message, hint)
    if len(new) > MAX_CHANGED_LINES:
        message = f"{len(new):,} lines are new."
        add("large_change", None, message, f"A good change has at most {MAX_CHANGED_LINES}.")
    return tuple(one for findings in found.values() for one in [*dict.fromkeys(findings)][:_MAX_PER_CODE])


def needs_no_person(before: SkillText | None, after: SkillText, mask: Callable[[str], str]) -> bool:
    """Whether a text of an agent may become a version at once, because it changes only prose of the body.

    The front matter of an existing skill must be unchanged, and so must all lines that are not prose, in
    their order. A new skill must have only a name, a description and `when_to_use`, and consist of prose.
    """
    if gate(before, after, mask):
        return False
    if before is None:
        texts = (after.description, after.when_to_use, after.content)
        return not unmarked(after).extra and all(map(is_prose, texts))
    return (
        not _changed_keys(before, after)
        and (before.description, before.when_to_use) == (after.description, after.when_to_use)
        and list(other_lines(before.content)) == list(other_lines(after.content))
    )


def _of_keys(before: SkillText | None, after: SkillText) -> Iterator[tuple[str, str, str, str]]:
    """Code, key, message and hint of each finding in the front matter as a whole."""
    for key in ("description", "when_to_use"):  # the written file shows some hidden characters as escapes
        text: str = getattr(after, key)
        if getattr(before, key, None) != text and any(map(has_hidden, text.split("\n"))):
            yield "hidden_characters", key, "It has invisible characters.", "Look at the escapes."
    for key in sorted(_changed_keys(before, after) - _QUIET_KEYS):
        message = f"It sets {key[:80]} in the front matter."
        yield "front_matter", key, message, "Check what an agent does with it."


def _changed_keys(before: SkillText | None, after: SkillText) -> frozenset[str]:
    """The keys of the front matter that are new, changed or gone, without the marks of agents."""
    old: Mapping[str, Any] = {} if before is None else unmarked(before).extra
    new = unmarked(after).extra
    return frozenset(
        key for key in old.keys() | new.keys() if key not in new or old.get(key, ...) != new[key]
    )


def admit(before: SkillText | None, after: SkillText, mask: Callable[[str], str]) -> tuple[Finding, ...]:
    """The findings that a person who accepts this text should read carefully.

    Raises:
        LibraryError: a finding is in `REFUSED`.
    """
    findings = gate(before, after, mask)
    for one in findings:
        if one.code in REFUSED:
            what = "the secret, and replace it" if one.code == "secret" else "them, or with escapes"
            hint = f"write it without {what}"
            raise LibraryError(f"line {one.line} of {after.name}: {one.message}", hint=hint)
    return findings


# --- prose -----------------------------------------------------------------------------------------------
# Decides whether a text consists of sentences, without commands, code, host names, links or markup. The rule
# lists what is allowed: words, numbers, punctuation, and the signs of headings, lists and emphasis.
# Everything else is not prose. A request in plain words remains possible, such as to install a certain
# package.

# Words with a hyphen, dash, apostrophe or one slash between them, and names with underscores.
_WORD: Final = r"\w+(?:[-'\u2019\u2011\u2013\u2014]\w+)*(?:/\w+(?:[-'\u2019]\w+)*)?(?:\([a-z]{1,3}\))?"
_ABBREVIATION: Final = r"(?:[^\W\d_]\.){1,3}[^\W\d_]"
_NUMBER: Final = r"v?\d+(?:\.\d+){0,2}|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,2}:\d\d(?::\d\d)?"
_OPENING: Final = r"[(\"'\u201c\u2018\u201e«\u2039¿¡*_]*"
_CLOSING: Final = r"[.,;:!?)\"'\u201d\u2019»\u203a*_%।\u06d4؟\u060c]*"
_TOKEN: Final = re.compile(rf"{_OPENING}(?P<word>{_NUMBER}|{_ABBREVIATION}|{_WORD}){_CLOSING}")
_SIGN: Final = re.compile(
    r"[-*+\u2013\u2014]|-{2,3}|\*{3}|#{1,6}|\d{1,4}[.)]|\.{3}|[\xd7±≤≥→←⇒✓✔✗✘✅❌•·]|\[[xX]?\]|[\[\]]"
)
# East Asian sentences have no blanks: their full stops separate, unless a letter of another script or a digit
# is next to one, as in a host name.
_OTHER: Final = r"[^\W\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
_STOP: Final = re.compile(rf"(?<!{_OTHER})[、。,;:!?()「」『』《》【】〈〉](?!{_OTHER})")
_INDENTED: Final = re.compile(r"\t| {4}")  # code, also after a list marker
_FENCE: Final = re.compile(r"\s*(?:[-*+>]\s+|\d+[.)]\s+)*(?P<fence>`{3,}|~{3,})")
_RUN: Final = re.compile("`+")
_LINK: Final = re.compile(r"\][(:\[]")  # `[x]` alone is a sign
_GO: Final = re.compile(r"\bgo\s+(?:run|install|get|generate)\b", re.IGNORECASE)
_PROGRAMS: Final = """
apk apt apt-get aptitude aws awk base64 bash brew bun bunx bzip2 cargo certutil chmod chown chroot cmd conda
corepack cp crontab csh curl dd deno dig dnf docker doas easy_install echo env eval exec flatpak gcc gcloud
gem gh git glab grep gunzip gzip helm hg iex invoke-expression invoke-webrequest irm iwr java jq killall ksh
kubectl localhost lua mkdir mkfifo mv nc ncat netcat nix nmap node nohup npm npx openssl pacman perl php pip
pip2 pip3 pipx pkexec pkill pnpm pnpx podman powershell printenv pwsh pypy python python2 python3 rm rmdir
rpm rsync ruby rustup scp sed setsid sftp sh socat ssh sudo svn systemctl tar tcsh telnet terraform tftp
unzip uv uvx vi vim wget wsl xargs xxd yarn yum zsh zypper
"""
_PROGRAM_NAMES: Final = frozenset(_PROGRAMS.split())


def is_prose(text: str) -> bool:
    """Whether every line is prose."""
    return not any(True for _ in other_lines(text))


def other_lines(text: str) -> Iterator[str]:
    """The lines of a Markdown text that are not prose, including all code blocks and spans."""
    fence, in_span, in_html = "", False, False
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            yield line
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found is not None:
            yield line
            fence, in_span, in_html = found["fence"], False, False
        elif not line.strip():
            in_span, in_html = False, False  # the end of a paragraph
        else:
            if in_span or in_html or not _is_prose(line):
                yield line
            in_span ^= len(_RUN.findall(line)) % 2 == 1
            in_html = in_html or "<" in line or line.endswith("\\")


def _is_prose(line: str) -> bool:
    is_listed = _SIGN.fullmatch(line.split(maxsplit=1)[0]) is not None
    if has_ignorable(line) or _INDENTED.search(line.lstrip(" ") if is_listed else line):
        return False
    plain = "".join(one for one in unicodedata.normalize("NFKC", line) if unicodedata.category(one)[0] != "M")
    if _GO.search(plain) or _LINK.search(plain):
        return False
    return all(_SIGN.fullmatch(token) or _is_word(token) for token in _STOP.sub(" ", plain).split())


def _is_word(token: str) -> bool:
    found = _TOKEN.fullmatch(token)
    return found is not None and _PROGRAM_NAMES.isdisjoint(found["word"].casefold().strip("_").split("/"))
