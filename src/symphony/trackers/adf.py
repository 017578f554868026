"""Converts Jira's Atlassian Document Format to Markdown for prompts, and Markdown comments to it.

Reading accepts any document and keeps all of its text. Writing supports what the daemon's comments use:
headings, paragraphs, flat lists, blocks of code, and code and bold text within a line.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

from symphony.http.fields import dig, items

Node = dict[str, Any]
_MAX_DEPTH = 60
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_HEADING = re.compile(r"(#{1,6}) +(.*)")
_BULLET = re.compile(r" {0,3}[-*] +(.*)")
_STYLED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)|\*\*([^*\n]+)\*\*")
_INLINE = frozenset({"text", "hardBreak", "mention", "emoji", "inlineCard", "date", "status", "placeholder"})


# --- reading ---------------------------------------------------------------------------------------------


def markdown_of(document: Any) -> str | None:
    """The text of a document; `None` for an empty one. Plain text is returned unchanged."""
    text = document if isinstance(document, str) else "\n\n".join(_blocks(document, 0))
    return text if text.strip() else None


def _blocks(node: Any, depth: int) -> list[str]:
    """The blocks of a node, without a line end behind each."""
    content = items(dig(node, "content"))
    is_line = not content or all(dig(each, "type") in _INLINE for each in content)
    if depth > _MAX_DEPTH:
        return []
    if (block := _block(node, content, depth)) is not None:
        return [block]
    if not is_line:
        return _below(content, depth)
    line = _line(content or [node])
    return [line] if line else []


def _below(nodes: Sequence[Any], depth: int) -> list[str]:
    return [block for node in nodes for block in _blocks(node, depth + 1)]


def _block(node: Any, content: Sequence[Any], depth: int) -> str | None:  # noqa: PLR0911 - one per kind
    """A block with a form of its own in Markdown; `None` for any other node."""
    match dig(node, "type"):
        case "codeBlock":
            code, language = _line(content), dig(node, "attrs", "language")
            fence = "`" * (1 + max(map(len, re.findall(r"`{3,}", code)), default=2))
            return f"{fence}{language if isinstance(language, str) else ''}\n{code}\n{fence}"
        case "heading":
            level = dig(node, "attrs", "level")
            hashes = "#" * level if isinstance(level, int) and level in range(1, 7) else "#"
            return f"{hashes} {_line(content)}"
        case "bulletList" | "taskList" | "decisionList":
            return "\n".join(_entry("- ", each, depth) for each in content)
        case "orderedList":
            return "\n".join(_entry(f"{number}. ", each, depth) for number, each in enumerate(content, 1))
        case "table":
            rows = (items(dig(row, "content")) for row in content)
            cells = (["; ".join(_blocks(cell, depth + 1)).replace("\n", " ") for cell in row] for row in rows)
            return "\n".join(f"| {' | '.join(row)} |" for row in cells)
        case "blockquote":
            lines = "\n\n".join(_below(content, depth)).split("\n")
            return "\n".join(f"> {line}" for line in lines)
        case kind:
            return "---" if kind == "rule" else None


def _entry(mark: str, node: Any, depth: int) -> str:
    """An entry of a list, with its further lines indented."""
    return mark + "\n".join(_blocks(node, depth + 1)).replace("\n", "\n" + " " * len(mark))


def _line(content: Sequence[Any]) -> str:
    return "".join(map(_inline, content))


def _inline(node: Any) -> str:
    kind = dig(node, "type")
    if kind == "hardBreak":
        return "\n"
    if kind != "text":  # something with a name: a mention, an emoji, a link
        named = (dig(node, "attrs", key) for key in ("text", "shortName", "url", "timestamp", "title"))
        return next((name for name in named if isinstance(name, str)), "")
    text = dig(node, "text")
    if not isinstance(text, str):
        return ""
    for mark in items(dig(node, "marks")):
        style, target = dig(mark, "type"), dig(mark, "attrs", "href")
        if style == "code":
            text = f"`{text}`"
        elif style == "strong":
            text = f"**{text}**"
        elif style == "link" and isinstance(target, str) and target != text:
            text = f"[{text}]({target})"
    return text


# --- writing ---------------------------------------------------------------------------------------------


def document_of(markdown: str) -> Node:
    """A document with the content of this Markdown."""
    lines = markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    content = []
    while lines:
        block, taken = _next_block(lines)
        if block is not None:
            content.append(block)
        del lines[:taken]
    return {"type": "doc", "version": 1, "content": content or [{"type": "paragraph", "content": []}]}


def _next_block(lines: Sequence[str]) -> tuple[Node | None, int]:
    """The block that the first line begins, `None` for a blank line, and how many lines it takes."""
    first = lines[0]
    if not first.strip():
        return None, 1
    if fence := _FENCE.match(first):
        inside = _count_while(lines[1:], lambda line: not _closes(line, fence[1]))
        code = "\n".join(lines[1 : 1 + inside])
        block: Node = {"type": "codeBlock", "content": [{"type": "text", "text": code}] if code else []}
        if fence[2]:
            block["attrs"] = {"language": fence[2]}
        return block, min(inside + 2, len(lines))
    if heading := _HEADING.fullmatch(first):
        attributes = {"level": len(heading[1])}
        return {"type": "heading", "attrs": attributes, "content": _styled(heading[2])}, 1
    if _BULLET.fullmatch(first):
        taken = _count_while(lines, lambda line: _BULLET.fullmatch(line) is not None)
        texts = [str(bullet[1]) for line in lines[:taken] if (bullet := _BULLET.fullmatch(line))]
        entries = [{"type": "listItem", "content": [_paragraph([text])]} for text in texts]
        return {"type": "bulletList", "content": entries}, taken
    taken = max(1, _count_while(lines, _is_text))
    return _paragraph(lines[:taken]), taken


def _is_text(line: str) -> bool:
    """Whether a line continues a paragraph."""
    return bool(line.strip()) and not any(rule.match(line) for rule in (_FENCE, _HEADING, _BULLET))


def _closes(line: str, fence: str) -> bool:
    match = _FENCE.match(line)
    return match is not None and match[1].startswith(fence) and not line[match.end(1) :].strip()


def _count_while(lines: Sequence[str], holds: Callable[[str], bool]) -> int:
    return next((number for number, line in enumerate(lines) if not holds(line)), len(lines))


def _paragraph(lines: Sequence[str]) -> Node:
    content: list[Node] = []
    for number, line in enumerate(lines):
        content += [{"type": "hardBreak"}] if number else []
        content += _styled(line)
    return {"type": "paragraph", "content": content}


def _styled(line: str) -> list[Node]:
    """The texts of a line, with code and bold text marked."""
    parts: list[tuple[str, str | None]] = []
    done = 0
    for match in _STYLED.finditer(line):
        parts.append((line[done : match.start()], None))
        parts.append((match[1], "code") if match[1] else (match[2], "strong"))
        done = match.end()
    parts.append((line[done:], None))
    return [
        {"type": "text", "text": text, **({"marks": [{"type": mark}]} if mark else {})}
        for text, mark in parts
        if text
    ]
