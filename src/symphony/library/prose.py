"""Whether a text is nothing but sentences: no commands, code, names of hosts, links or markup. Pure.

This is a list of what may be there, not of what may not: words, numbers, punctuation, and the signs of
headings, lists and emphasis. What is not known is no prose. A request in plain words stays possible, such as
to install a package of some name.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from symphony.characters import has_ignorable

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
# East Asian sentences have no blanks: their stops separate, unless a letter of another script or a digit is
# beside one, as in the name of a host.
_OTHER: Final = r"[^\W\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
_STOP: Final = re.compile(rf"(?<!{_OTHER})[、。,;:!?()「」『』《》【】〈〉](?!{_OTHER})")
_INDENTED: Final = re.compile(r"\t| {4}")  # code, also behind the sign of a list
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
    """The lines of a Markdown text that are not prose, with all that is in blocks and spans of code."""
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
