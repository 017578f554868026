"""Draws the entries of a transcript: time, kind and text. Messages are whole, everything else is short."""

from typing import Final, assert_never

from rich.console import RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from symphony.cli.formatting import cell, lines, parse_time, plural, tokens
from symphony.domain import one_line, without_codes
from symphony.journal import transcripts

_PROMPT_LINES: Final = 6
_OUTPUT_LINES: Final = 5
_MAX_CHARS: Final = 300
_DECISIONS: Final = {"accept": "allowed", "decline": "declined", "required": "a person must decide"}
_BAD: Final = frozenset({"failed", "declined", "unfinished"})


def entry_view(entry: transcripts.TranscriptEntry, run_id: str) -> RenderableType:  # noqa: C901, PLR0911, PLR0912 - one case per kind
    """One entry, on a few lines."""
    match entry:
        case transcripts.TurnEntry():
            return _turn(entry, run_id)
        case transcripts.MessageEntry():
            mark = "" if entry.status == "complete" else f" ({entry.status})"
            return _row(entry, "agent", lines(entry.text + mark), "bold")
        case transcripts.ReasoningEntry():
            return _row(entry, "thinks", lines(entry.text, "dim"), "dim")
        case transcripts.PlanEntry():
            steps = [f"[{step.status}] {step.text}" for step in entry.steps]
            return _row(entry, "plan", lines("\n".join(text for text in [entry.text, *steps] if text)))
        case transcripts.CommandEntry():
            return _row(entry, "runs", _command(entry))
        case transcripts.CheckEntry():
            style = "green" if entry.passed else "red"
            return _row(entry, "check", _short(f"{entry.name} {entry.result}", style), style)
        case transcripts.EditEntry():
            names = [f"{file.path} +{file.added} -{file.removed}" for file in entry.files]
            return _row(entry, "edits", _with_status(", ".join(names) or "files", entry.status))
        case transcripts.ToolEntry():
            return _row(entry, "tool", _with_status(f"{entry.name} {entry.arguments}".strip(), entry.status))
        case transcripts.ApprovalEntry():
            decision = _DECISIONS.get(entry.decision, entry.decision)
            return _row(
                entry, "asks", Text.assemble(_short(entry.subject), f": {one_line(decision)}"), "yellow"
            )
        case transcripts.QuestionEntry():
            return _row(entry, "question", lines(entry.text), "yellow")
        case transcripts.AnswerEntry():
            who = "" if entry.by is None else f" by {one_line(entry.by)}"
            said = lines(entry.text) if entry.decided is None else cell(f"{one_line(entry.decided)}{who}")
            return _row(entry, "answer", said, "green")
        case transcripts.UsageEntry():
            split = f"{tokens(entry.input_tokens)} in, {tokens(entry.output_tokens)} out"
            return _row(entry, "tokens", cell(f"{tokens(entry.total_tokens)} so far: {split}", "dim"), "dim")
        case transcripts.NoteEntry():
            style = {"warning": "yellow", "error": "red"}.get(entry.level, "dim")
            return _row(entry, "note", _short(entry.text, style), style)
        case _:
            assert_never(entry)


def _turn(entry: transcripts.TurnEntry, run_id: str) -> RenderableType:
    if entry.status == "started":
        title = f"run {run_id}, turn {entry.turn}, {_time(entry.at, '%Y-%m-%d %H:%M:%S')}"
        grid = Table.grid()
        grid.add_row(Rule(cell(title), align="left", style="dim"))
        for label, text in (("envelope", entry.envelope), ("prompt", entry.prompt)):
            if text:
                grid.add_row(_row(entry, label, _first_lines(text, _PROMPT_LINES), "cyan"))
        return grid
    cost = "" if entry.cost_usd is None else f" for {entry.cost_usd:.4f} USD"
    reason = "" if entry.reason is None else f": {without_codes(entry.reason)}"
    text = f"turn {entry.turn} {entry.status}{cost}{reason}"
    return _row(entry, "", cell(text, "" if entry.status == "completed" else "red"))


def _command(entry: transcripts.CommandEntry) -> Text:
    code = "" if entry.exit_code is None else f", exit {entry.exit_code}"
    text = _with_status(entry.command, f"{entry.status}{code}", bad=bool(entry.exit_code))
    shown = [line for line in entry.output.splitlines() if line.strip()][-_OUTPUT_LINES:]
    for line in shown:
        text.append("\n").append_text(cell(f"│ {one_line(line, _MAX_CHARS)}", "dim"))
    return text


def _with_status(text: str, status: str, *, bad: bool = False) -> Text:
    style = "red" if bad or status.partition(",")[0] in _BAD else "dim"
    return Text.assemble(_short(text), " ", cell(f"→ {status}", style))


def _first_lines(text: str, most: int) -> Text:
    every = text.strip().splitlines()
    more = len(every) - most
    shown = lines("\n".join(one_line(line, _MAX_CHARS) for line in every[:most]), "dim")
    if more > 0:
        shown.append(f"\n… and {plural(more, 'line')} more: --json has them", style="dim")
    return shown


def _short(text: str, style: str = "") -> Text:
    return cell(one_line(text, _MAX_CHARS), style)


def _row(entry: transcripts.TranscriptEntry, label: str, text: Text, style: str = "") -> Table:
    if entry.left_out:
        text.append(f" (and {entry.left_out:,} characters that were not kept)", style="dim")
    row = Table.grid(padding=(0, 1), expand=True)
    row.add_column(width=8)
    row.add_column(width=8)
    row.add_column(ratio=1, overflow="fold")
    row.add_row(Text(_time(entry.at, "%H:%M:%S"), style="dim"), Text(label, style=style), text)
    return row


def _time(at: str, form: str) -> str:
    """A time of the file in local time."""
    moment = parse_time(at)
    return "?" if moment is None else moment.astimezone().strftime(form)
