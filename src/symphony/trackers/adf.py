"""Jira's rich text, the Atlassian Document Format: to Markdown for prompts, from Markdown for our comments.

Reading takes any document and drops nothing that is text. Writing knows what our comments are made of:
headings, paragraphs, lists without depth, blocks of code, and code and bold type within a line.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symphony.trackers.fields import items, mapping

Node = dict[str, Any]
_MAX_DEPTH = 60
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([\w+-]*)")
_HEADING = re.compile(r"(#{1,6}) +(.*)")
_BULLET = re.compile(r" {0,3}[-*] +(.*)")
_MARKED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)|\*\*([^*\n]+)\*\*")
_INLINE = frozenset({"text", "hardBreak", "mention", "emoji", "inlineCard", "date", "status", "placeholder"})
_NAMED_BY = ("text", "shortName", "url", "timestamp", "title")


# --- reading ---------------------------------------------------------------------------------------------


def markdown_of(document: Any) -> str | None:
    """The text of a document, or null where there is none. A plain text is taken as it is."""
    text = document if isinstance(document, str) else "\n\n".join(_blocks(document, 0))
    return text if text.strip() else None


def _blocks(node: Any, depth: int) -> list[str]:
    """The blocks of a node, each without a line end behind it."""
    if depth > _MAX_DEPTH:
        return []
    content = items(mapping(node).get("content"))
    shape = _SHAPES.get(str(mapping(node).get("type")))
    if shape is not None:
        return [shape(mapping(mapping(node).get("attrs")), content, depth)]
    if not content or all(mapping(each).get("type") in _INLINE for each in content):
        line = _line(content or [node])
        return [line] if line else []
    return _below(content, depth)


def _below(content: Sequence[Any], depth: int) -> list[str]:
    return [block for each in content for block in _blocks(each, depth + 1)]


def _code_block(attributes: Mapping[str, Any], content: Sequence[Any], depth: int) -> str:
    del depth
    code, language = _line(content), attributes.get("language")
    runs = re.findall(r"`{3,}", code)
    fence = "`" * (max(map(len, runs)) + 1 if runs else 3)
    return f"{fence}{language if isinstance(language, str) else ''}\n{code}\n{fence}"


def _title(attributes: Mapping[str, Any], content: Sequence[Any], depth: int) -> str:
    del depth
    level = attributes.get("level")
    hashes = level if isinstance(level, int) and level in range(1, 7) else 1
    return f"{'#' * hashes} {_line(content)}"


def _list(attributes: Mapping[str, Any], content: Sequence[Any], depth: int) -> str:
    del attributes
    return "\n".join(_entry("- ", each, depth) for each in content)


def _numbered(attributes: Mapping[str, Any], content: Sequence[Any], depth: int) -> str:
    del attributes
    return "\n".join(_entry(f"{number}. ", each, depth) for number, each in enumerate(content, 1))


def _entry(mark: str, node: Any, depth: int) -> str:
    text = "\n".join(_blocks(node, depth + 1))
    return mark + text.replace("\n", "\n" + " " * len(mark))


def _table(attributes: Mapping[str, Any], content: Sequence[Any], depth: int) -> str:
    del attributes
    rows = (items(mapping(row).get("content")) for row in content)
    lines = (["; ".join(_blocks(cell, depth + 1)).replace("\n", " ") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _quote(attributes: Mapping[str, Any], content: Sequence[Any], depth: int) -> str:
    del attributes
    return "\n".join(f"> {line}" for line in "\n\n".join(_below(content, depth)).split("\n"))


def _rule(attributes: Mapping[str, Any], content: Sequence[Any], depth: int) -> str:
    del attributes, content, depth
    return "---"


_SHAPES: Mapping[str, Callable[[Mapping[str, Any], Sequence[Any], int], str]] = {
    "codeBlock": _code_block,
    "heading": _title,
    "bulletList": _list,
    "taskList": _list,
    "decisionList": _list,
    "orderedList": _numbered,
    "table": _table,
    "blockquote": _quote,
    "rule": _rule,
}


def _line(content: Sequence[Any]) -> str:
    return "".join(_word(each) for each in content)


def _word(node: Any) -> str:
    kind = mapping(node).get("type")
    if kind == "hardBreak":
        return "\n"
    if kind == "text":
        return _styled(mapping(node))
    attributes = mapping(mapping(node).get("attrs"))
    named = (attributes.get(name) for name in _NAMED_BY)
    return next((name for name in named if isinstance(name, str)), "")


def _styled(node: Mapping[str, Any]) -> str:
    text = node.get("text")
    if not isinstance(text, str):
        return ""
    for mark in items(node.get("marks")):
        kind, target = mapping(mark).get("type"), mapping(mapping(mark).get("attrs")).get("href")
        if kind == "code":
            text = f"`{text}`"
        elif kind == "strong":
            text = f"**{text}**"
        elif kind == "link" and isinstance(target, str) and target != text:
            text = f"[{text}]({target})"
    return text


# --- writing ---------------------------------------------------------------------------------------------


def document_of(markdown: str) -> Node:
    """A document that says the same."""
    lines = markdown.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    content = []
    while lines:
        block, taken = _next_block(lines)
        if block is not None:
            content.append(block)
        del lines[:taken]
    return {"type": "doc", "version": 1, "content": content or [{"type": "paragraph", "content": []}]}


def _next_block(lines: Sequence[str]) -> tuple[Node | None, int]:
    """The block that the first line begins, null for a blank line, and how many lines it takes."""
    first = lines[0]
    if not first.strip():
        return None, 1
    if fence := _FENCE.match(first):
        return _code(lines, fence)
    if heading := _HEADING.fullmatch(first):
        attributes = {"level": len(heading[1])}
        return {"type": "heading", "attrs": attributes, "content": _words(heading[2])}, 1
    if _BULLET.fullmatch(first):
        taken = _while(lines, lambda line: _BULLET.fullmatch(line) is not None)
        texts = [str(found[1]) for line in lines[:taken] if (found := _BULLET.fullmatch(line))]
        return {"type": "bulletList", "content": [_item(text) for text in texts]}, taken
    taken = max(1, _while(lines, lambda line: bool(line.strip()) and not _begins(line)))
    return _paragraph(lines[:taken]), taken


def _begins(line: str) -> bool:
    return any(rule.match(line) for rule in (_FENCE, _HEADING, _BULLET))


def _while(lines: Sequence[str], holds: Callable[[str], bool]) -> int:
    return next((number for number, line in enumerate(lines) if not holds(line)), len(lines))


def _code(lines: Sequence[str], fence: re.Match[str]) -> tuple[Node, int]:
    def closes(line: str) -> bool:
        found = _FENCE.match(line)
        return found is not None and found[1].startswith(fence[1]) and not line[found.end(1) :].strip()

    inside = _while(lines[1:], lambda line: not closes(line))
    code = "\n".join(lines[1 : 1 + inside])
    block: Node = {"type": "codeBlock", "content": [{"type": "text", "text": code}] if code else []}
    if fence[2]:
        block["attrs"] = {"language": fence[2]}
    return block, min(inside + 2, len(lines))


def _item(text: str) -> Node:
    return {"type": "listItem", "content": [_paragraph([text])]}


def _paragraph(lines: Sequence[str]) -> Node:
    content: list[Node] = []
    for number, line in enumerate(lines):
        content += [{"type": "hardBreak"}] if number else []
        content += _words(line)
    return {"type": "paragraph", "content": content}


def _words(line: str) -> list[Node]:
    found: list[tuple[str, str | None]] = []
    done = 0
    for match in _MARKED.finditer(line):
        found.append((line[done : match.start()], None))
        found.append((match[1], "code") if match[1] else (match[2], "strong"))
        done = match.end()
    found.append((line[done:], None))
    return [
        {"type": "text", "text": text, **({"marks": [{"type": mark}]} if mark else {})}
        for text, mark in found
        if text
    ]
