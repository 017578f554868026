"""The library's SQLite file. Everything here blocks; each call opens the file again.

The file contains what people wrote and decided, so it is never replaced. A file that is damaged, of another
program or of a newer version is refused and stays unchanged. Several daemons and commands may use one file at
the same time. A writer waits for another one for up to `BUSY_S` seconds.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from symphony import sqlite
from symphony.domain import SKILL_LABEL_PREFIX
from symphony.library.evaluation import Evaluation
from symphony.library.model import (
    MAX_REASON_CHARS,
    Assignment,
    Authorship,
    Evidence,
    Learned,
    LearningState,
    LibraryError,
    LibrarySkill,
    NotInLibraryError,
    Origin,
    Proposal,
    ProposalState,
    Purged,
    Rating,
    Resolution,
    Reverted,
    SkillDraft,
    SkillHead,
    SkillText,
    SkillVersion,
    StaleVersionError,
    StoredFeedback,
    TargetKind,
)
from symphony.library.provenance import body_fingerprint, change_fingerprint, says_as_much

APPLICATION_ID: Final = 0x53594C42
"""`SYLB`: distinguishes libraries from other SQLite files."""
LIBRARY_FILE: Final = "library.db"
"""The name of the library in the state directory."""
BUSY_S: Final = 5.0

_MIGRATIONS: Final = (
    """
    CREATE TABLE skills (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, description TEXT NOT NULL, when_to_use TEXT NOT NULL,
        version INTEGER NOT NULL, origin TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL, updated_at_ms INTEGER NOT NULL,
        removed_at_ms INTEGER, removed_by TEXT, removed_because TEXT
    );
    CREATE UNIQUE INDEX skills_by_name ON skills (name) WHERE removed_at_ms IS NULL;
    CREATE TABLE versions (
        skill_id INTEGER NOT NULL REFERENCES skills (id), version INTEGER NOT NULL,
        description TEXT NOT NULL, when_to_use TEXT NOT NULL, content TEXT NOT NULL, extra TEXT NOT NULL,
        author TEXT NOT NULL, reason TEXT NOT NULL, run_id TEXT, at_ms INTEGER NOT NULL,
        learned INTEGER NOT NULL, origin TEXT NOT NULL, body_fingerprint TEXT NOT NULL,
        PRIMARY KEY (skill_id, version)
    );
    CREATE INDEX versions_by_body ON versions (body_fingerprint);
    CREATE TABLE assignments (
        kind TEXT NOT NULL, target TEXT NOT NULL, names TEXT NOT NULL, at_ms INTEGER NOT NULL,
        PRIMARY KEY (kind, target)
    ) WITHOUT ROWID;
    CREATE TABLE proposals (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, base_version INTEGER NOT NULL,
        description TEXT NOT NULL, when_to_use TEXT NOT NULL, content TEXT NOT NULL, extra TEXT NOT NULL,
        fingerprint TEXT NOT NULL UNIQUE, state TEXT NOT NULL, evidence TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL, decided_at_ms INTEGER, decided_by TEXT, reason TEXT,
        skill_id INTEGER REFERENCES skills (id), body_fingerprint TEXT NOT NULL
    );
    CREATE INDEX proposals_by_body ON proposals (body_fingerprint);
    CREATE INDEX proposals_by_state ON proposals (state, id);
    """,
    """
    CREATE TABLE feedback (
        id INTEGER PRIMARY KEY, workflow TEXT NOT NULL, issue_identifier TEXT NOT NULL, rating TEXT NOT NULL,
        learning TEXT NOT NULL, attempts INTEGER NOT NULL, reason TEXT, learned TEXT, at_ms INTEGER NOT NULL
    );
    CREATE INDEX feedback_by_issue ON feedback (workflow, issue_identifier, id);
    CREATE INDEX feedback_by_learning ON feedback (workflow, learning, id);
    """,
    """
    CREATE TABLE evaluations (
        proposal_id INTEGER PRIMARY KEY REFERENCES proposals (id) ON DELETE CASCADE, evaluation TEXT NOT NULL
    );
    """,
)
_STEPS: Final = {version: script.split(";") for version, script in enumerate(_MIGRATIONS)}
VERSION: Final = len(_MIGRATIONS)
"""The number of migrations that a file has had, in `PRAGMA user_version`."""

_HEADS: Final = """
SELECT id, name, description, when_to_use, version, origin, created_at_ms, updated_at_ms
FROM skills WHERE removed_at_ms IS NULL
"""
_CONTENT: Final = "SELECT content, extra FROM versions WHERE skill_id = ? AND version = ?"
_VERSION: Final = """
SELECT versions.version, name, versions.description, versions.when_to_use, content, extra, author, reason,
       run_id, at_ms, learned
FROM versions JOIN skills ON id = skill_id WHERE skill_id = ?
"""
_PROPOSAL: Final = """
SELECT id, name, skill_id, base_version, description, when_to_use, content, extra, state, evidence,
       created_at_ms, decided_at_ms, decided_by, reason, evaluation
FROM proposals LEFT JOIN evaluations ON proposal_id = id
"""
_FEEDBACK: Final = "SELECT id, rating, learning, attempts, reason, learned, at_ms FROM feedback"
_STARS: Final = """
SELECT rating ->> '$.run_ids[0]', rating ->> '$.stars' FROM feedback
WHERE workflow = ? AND rating ->> '$.author' = 'operator' AND rating ->> '$.run_ids[0]' IS NOT NULL
ORDER BY id
"""
_ISSUE_STARS: Final = """
SELECT issue_identifier, rating ->> '$.stars' FROM feedback
WHERE workflow = ? AND rating ->> '$.author' = 'operator' ORDER BY id
"""
_RETIRED: Final = """
SELECT DISTINCT name FROM skills WHERE removed_at_ms IS NOT NULL
EXCEPT SELECT name FROM skills WHERE removed_at_ms IS NULL
"""
_REMOVED_BODY: Final = """
SELECT min(removed_at_ms IS NOT NULL) FROM versions JOIN skills ON id = skill_id WHERE body_fingerprint = ?
"""
_REJECTED_BODY: Final = """
SELECT description, when_to_use, content, extra FROM proposals
WHERE body_fingerprint = ? AND state = 'rejected'
"""
_LEARNED_SINCE: Final = """
SELECT DISTINCT skills.name FROM skills JOIN versions ON skill_id = id
WHERE removed_at_ms IS NULL AND at_ms >= ? AND learned ORDER BY skills.name
"""
_MOVE_HINT: Final = "set agent.library.path to another file, or move this one away"
_RETIRED_REASON: Final = "a person removed the skill {} from the library"
_DAMAGED_HINT: Final = "restore a backup; the file is not changed"
_REMOVED_REASON: Final = "a person removed a skill with the text of {} from the library"
_LEARNED_LAST: Final = f"ORDER BY origin = '{Origin.LEARNED}', name"


def wall_ms() -> int:
    """Milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


def library_path(state_dir: Path, configured: str | None) -> Path:
    """Where the library is; `configured` is `agent.library.path`, absolute or below the home directory."""
    return state_dir / LIBRARY_FILE if configured is None else Path(configured).expanduser()


class Library:
    """The skills of a library.

    Args:
        path: the file; it is created at its first use.
        now_ms: the wall clock.
        busy_s: how long to wait for other processes that lock the file.
    """

    def __init__(self, path: Path, *, now_ms: Callable[[], int] = wall_ms, busy_s: float = BUSY_S) -> None:
        self.path = path
        self._busy_s = busy_s
        self._now_ms = now_ms

    # --- skills ------------------------------------------------------------------------------------------

    def skills(self, *, query: str = "", origin: Origin | None = None) -> tuple[SkillHead, ...]:
        """The skills whose name, description or `when_to_use` has all words of the query; learned ones last.

        Raises:
            LibraryError: the file cannot be used. This holds for every method.
        """
        where, values = [_HEADS], []
        for word in query.split():
            where.append("instr(lower(name || ' ' || description || ' ' || when_to_use), ?)")
            values.append(word.lower())
        if origin is not None:
            where.append("origin = ?")
            values.append(origin.value)
        with self._reading() as connection:
            rows = connection.execute(f"{' AND '.join(where)} {_LEARNED_LAST}", values)
            return tuple(map(_head, rows))

    def skill(self, name: str) -> LibrarySkill:
        """The skill with this name.

        Raises:
            NotInLibraryError: there is none.
        """
        with self._reading() as connection:
            return _present(connection, name)

    def add(self, text: SkillText, change: Authorship, *, origin: Origin = Origin.WRITTEN) -> LibrarySkill:
        """Add a skill.

        Raises:
            LibraryError: the text is invalid, the library has a skill of that name, or an agent adds a skill
                that a person removed or rejected.
        """
        text.checked()
        with self._writing() as connection:
            _refuse(connection, text, change)
            if _find(connection, text.name) is not None:
                hint = f"`symphony library edit {text.name}` changes it; or choose another name"
                raise LibraryError(f"the library has a skill {text.name}", hint=hint)
            return self._insert(connection, text, change, origin)

    def edit(self, text: SkillText, change: Authorship, *, base_version: int) -> LibrarySkill:
        """Change a skill; return it unchanged if it already has this text.

        Raises:
            StaleVersionError: `base_version` is not the present version.
            LibraryError: the text is invalid, there is no such skill, or a person rejected this text of an
                agent.
        """
        text.checked()
        with self._writing() as connection:
            _refuse(connection, text, change)
            present = _present(connection, text.name)
            if present.version != base_version:
                raise StaleVersionError(base_version, present)
            origin = Origin.LEARNED if change.by_agent else present.origin
            return self._new_version(connection, present, text, change, origin)

    def remove(self, name: str, change: Authorship) -> LibrarySkill:
        """Remove a skill; its versions stay. Only a person may reuse its name: see `retired`.

        Raises:
            LibraryError: there is no such skill.
        """
        with self._writing() as connection:
            present = _present(connection, name)
            self._remove(connection, present, change)
            return present

    def named(self, names: Collection[str]) -> tuple[LibrarySkill, ...]:
        """The existing skills with these names, in the order of the names."""
        with self._reading() as connection:
            found = (_find(connection, name) for name in names)
            return tuple(one for one in found if one is not None)

    def retired(self) -> dict[str, str]:
        """Names of removed skills, which no agent may use again, with the reason for people."""
        with self._reading() as connection:
            names = [str(row[0]) for row in connection.execute(_RETIRED)]
            return {name: _RETIRED_REASON.format(name) for name in names}

    def purge(self, since_ms: int, change: Authorship, *, dry_run: bool = False) -> Purged:
        """Remove all texts that agents wrote since then, in one transaction.

        A skill returns to its newest text without any part of them, as a new version. A version that a person
        based on a learned one counts as learned, until an earlier text is restored. A skill without such a
        text is removed. Open proposals since then are rejected. History stays.

        Args:
            since_ms: milliseconds since 1970, UTC; a version counts from its acceptance.
            change: by whom and why.
            dry_run: only report what would be done.
        """
        removed, reverted, rejected = [], [], []
        with self._reading() if dry_run else self._writing() as connection:
            for (name,) in connection.execute(_LEARNED_SINCE, (since_ms,)).fetchall():
                present = _present(connection, name)
                clean = _clean_version(connection, present, since_ms)
                if clean is None:
                    removed.append(name)
                    if not dry_run:
                        self._remove(connection, present, change)
                elif clean.text != present.text:
                    reverted.append(
                        Reverted(
                            name=name,
                            before=present.version,
                            version=present.version + 1,
                            text_of=clean.version,
                        )
                    )
                    if not dry_run:
                        self._back_to(connection, present, clean, change)
            sql = "SELECT id FROM proposals WHERE state = 'open' AND created_at_ms >= ? ORDER BY id"
            for (number,) in connection.execute(sql, (since_ms,)).fetchall():
                rejected.append(int(number))
                if not dry_run:
                    self._decide(connection, number, ProposalState.REJECTED, change.author, change.reason)
        return Purged(removed=tuple(removed), reverted=tuple(reverted), rejected=tuple(rejected))

    def history(self, name: str) -> tuple[SkillVersion, ...]:
        """The versions of a skill, the newest first.

        Raises:
            LibraryError: there is no such skill.
        """
        with self._reading() as connection:
            present = _present(connection, name)
            rows = connection.execute(f"{_VERSION} ORDER BY versions.version DESC", (present.id,))
            return tuple(map(_version, rows))

    def version(self, name: str, number: int) -> SkillVersion:
        """One version of a skill.

        Raises:
            LibraryError: there is no such skill or version.
        """
        with self._reading() as connection:
            return _version_of(connection, _present(connection, name), number)

    def revert(self, name: str, number: int, change: Authorship) -> LibrarySkill:
        """Make the text of an earlier version the newest version.

        Raises:
            LibraryError: there is no such skill or version.
        """
        with self._writing() as connection:
            present = _present(connection, name)
            earlier = _version_of(connection, present, number)
            return self._back_to(connection, present, earlier, change)

    # --- assignments -------------------------------------------------------------------------------------

    def assign(self, kind: TargetKind, target: str, names: Sequence[str]) -> Assignment:
        """Assign exactly these skills; no names mean no skills.

        Raises:
            LibraryError: the library lacks one of the skills.
        """
        with self._writing() as connection:
            for name in names:
                _present(connection, name)
            chosen, now_ms = tuple(sorted(set(names))), self._now_ms()
            row = (kind.value, target, json.dumps(chosen), now_ms)
            connection.execute("REPLACE INTO assignments VALUES (?, ?, ?, ?)", row)
            return Assignment(kind=kind, target=target, names=chosen, at_ms=now_ms)

    def unassign(self, kind: TargetKind, target: str) -> bool:
        """Drop an assignment, so that the next rule decides; return whether there was one."""
        with self._writing() as connection:
            sql = "DELETE FROM assignments WHERE kind = ? AND target = ?"
            return connection.execute(sql, (kind.value, target)).rowcount > 0

    def assignments(self) -> tuple[Assignment, ...]:
        """All assignments, those of issues last."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT kind, target, names, at_ms FROM assignments ORDER BY kind, target"
            )
            return tuple(map(_assignment, rows))

    def resolve(
        self, *, issue: str, labels: Iterable[str], agent: str, configured: Sequence[str] | None
    ) -> Resolution:
        """The skills of a run: those of the issue, else those of the agent, else all.

        Args:
            issue: the identifier.
            labels: the labels of the issue; `skill:<name>` assigns a skill, in addition to those assigned by
                command.
            agent: its name.
            configured: the setting `agents.<name>.library`; `None` if it is not set.
        """
        prefix = SKILL_LABEL_PREFIX
        labelled = [label.removeprefix(prefix) for label in labels if label.startswith(prefix)]
        with self._reading() as connection:
            of_issue = _names(connection, TargetKind.ISSUE, issue)
            of_agent = _names(connection, TargetKind.AGENT, agent)
            if labelled or of_issue is not None:
                names, reason = (*labelled, *(of_issue or ())), f"assigned to {issue}"
            elif of_agent is not None or configured is not None:
                names = of_agent if of_agent is not None else tuple(configured or ())
                reason = f"assigned to the agent {agent}"
            else:
                rows = connection.execute(f"{_HEADS} {_LEARNED_LAST}")
                return Resolution(skills=tuple(map(_head, rows)), reason="no assignment: all")
            sql = f"{_HEADS} AND name = ?"
            found = {name: connection.execute(sql, (name,)).fetchone() for name in names}
        heads = [_head(row) for row in found.values() if row is not None]
        return Resolution(
            skills=tuple(sorted(heads, key=lambda one: (one.origin is Origin.LEARNED, one.name))),
            reason=reason,
            unknown=tuple(sorted(name for name, row in found.items() if row is None)),
        )

    # --- proposals ---------------------------------------------------------------------------------------

    def propose(
        self, text: SkillText, evidence: Evidence, *, base_version: int, skill_id: int | None = None
    ) -> Proposal | None:
        """Record a change that waits for a person; `None` if it was proposed before.

        Texts that people rejected, and skills and texts that people removed, are not proposed again.

        Args:
            text: the new text of the skill.
            evidence: where it comes from.
            base_version: the version on which the change is based; 0 for a new skill.
            skill_id: the skill that it changes; by default the present one with that name.

        Raises:
            LibraryError: the text is invalid.
        """
        draft = SkillDraft(text=text, base_version=base_version, skill_id=skill_id)
        with self._writing() as connection:
            return self._propose(connection, draft, evidence)

    def _propose(
        self, connection: sqlite3.Connection, draft: SkillDraft, evidence: Evidence
    ) -> Proposal | None:
        text = draft.text.checked()
        present = _find(connection, text.name) if draft.base_version else None
        skill_id = None if present is None else present.id
        is_gone = draft.skill_id is not None and draft.skill_id != skill_id
        is_rejected = any(says_as_much(text, one) for one in _rejected(connection, text))
        if is_gone or is_rejected or _removed(connection, text) is not None:
            return None
        row = (
            text.name, draft.base_version, text.description, text.when_to_use, text.content,
            json.dumps(text.extra), change_fingerprint(text, skill_id), ProposalState.OPEN.value,
            json.dumps(structs.asdict(evidence)), self._now_ms(), skill_id, body_fingerprint(text),
        )  # fmt: skip
        found = connection.execute(
            "INSERT INTO proposals (name, base_version, description, when_to_use, content, extra, "
            "fingerprint, state, evidence, created_at_ms, skill_id, body_fingerprint) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (fingerprint) DO NOTHING RETURNING id",
            row,
        ).fetchone()
        return None if found is None else _proposal(connection, int(found[0]))

    def proposals(self, *, state: ProposalState | None = ProposalState.OPEN) -> tuple[Proposal, ...]:
        """The proposals in that state, or all, the oldest first."""
        with self._reading() as connection:
            sql, values = (
                (_PROPOSAL, ()) if state is None else (f"{_PROPOSAL} WHERE state = ?", (state.value,))
            )
            rows = connection.execute(f"{sql} ORDER BY id", values).fetchall()
            return tuple(_proposal_of(connection, row) for row in rows)

    def open_proposals(self) -> int:
        """How many proposals wait for a person."""
        with self._reading() as connection:
            sql = "SELECT count(*) FROM proposals WHERE state = ?"
            return int(connection.execute(sql, (ProposalState.OPEN.value,)).fetchone()[0])

    def proposal(self, number: int) -> Proposal:
        """One proposal.

        Raises:
            LibraryError: there is none with that number.
        """
        with self._reading() as connection:
            return _proposal(connection, number)

    def accept(self, number: int, author: str) -> LibrarySkill:
        """Turn a proposal into a version.

        Raises:
            StaleVersionError: the skill has changed since the proposal.
            LibraryError: there is no open proposal with that number, or its skill was removed.
        """
        with self._writing() as connection:
            return self._accept(connection, number, author, None)

    def _accept(
        self, connection: sqlite3.Connection, number: int, author: str, origin: Origin | None
    ) -> LibrarySkill:
        """Turn a proposal into a version; without an `origin` it keeps that of the skill."""
        proposal = self._decide(connection, number, ProposalState.ACCEPTED, author, None)
        run_id = proposal.evidence.run_id
        change = Authorship(author=author, reason=f"proposal {number}", run_id=run_id, learned=run_id is None)
        present = _find(connection, proposal.text.name)
        if present is None and proposal.base_version == 0:
            return self._insert(connection, proposal.text, change, Origin.LEARNED)
        present = present or _present(connection, proposal.text.name)
        if present.version != proposal.base_version:
            raise StaleVersionError(proposal.base_version, present)
        if present.id != proposal.skill_id:
            raise LibraryError(
                f"proposal {number} is of an earlier skill {present.name}, which was removed",
                hint=f"`symphony library reject {number}`",
            )
        return self._new_version(connection, present, proposal.text, change, origin or present.origin)

    def reject(self, number: int, author: str, reason: str = "") -> Proposal:
        """Reject a proposal.

        Raises:
            LibraryError: there is no open proposal with that number.
        """
        with self._writing() as connection:
            return self._decide(connection, number, ProposalState.REJECTED, author, reason)

    def record_evaluation(self, number: int, evaluation: Evaluation) -> Proposal:
        """Store the evaluation of a proposal; it replaces an earlier one.

        Raises:
            LibraryError: there is no proposal with that number.
        """
        with self._writing() as connection:
            _proposal(connection, number)
            row = (number, msgspec.json.encode(evaluation).decode())
            connection.execute("REPLACE INTO evaluations VALUES (?, ?)", row)
            return _proposal(connection, number)

    def _decide(
        self,
        connection: sqlite3.Connection,
        number: int,
        state: ProposalState,
        author: str,
        reason: str | None,
    ) -> Proposal:
        proposal = _proposal(connection, number)
        if proposal.state is not ProposalState.OPEN:
            raise LibraryError(f"proposal {number} is {proposal.state} already")
        connection.execute(
            "UPDATE proposals SET state = ?, decided_at_ms = ?, decided_by = ?, reason = ? WHERE id = ?",
            (state.value, self._now_ms(), author, reason and reason[:MAX_REASON_CHARS], number),
        )
        return _proposal(connection, number)

    # --- feedback ----------------------------------------------------------------------------------------

    def rate(self, rating: Rating, *, off: str | None = None) -> StoredFeedback:
        """Store a rating permanently. It waits for a learning run, unless `off` says why there is none."""
        state = LearningState.WAITING if off is None else LearningState.OFF
        row = (
            rating.workflow, rating.issue_identifier, msgspec.json.encode(rating).decode(), state.value, off,
            self._now_ms(),
        )  # fmt: skip
        with self._writing() as connection:
            (number,) = connection.execute(
                "INSERT INTO feedback (workflow, issue_identifier, rating, learning, reason, at_ms, "
                "attempts) VALUES (?, ?, ?, ?, ?, ?, 0) RETURNING id",
                row,
            ).fetchone()
            return _feedback(connection, number)

    def feedback(self, workflow: str, identifier: str) -> tuple[StoredFeedback, ...]:
        """All feedback on an issue, the newest first."""
        with self._reading() as connection:
            sql = f"{_FEEDBACK} WHERE workflow = ? AND issue_identifier = ? ORDER BY id DESC"
            return tuple(map(_feedback_of, connection.execute(sql, (workflow, identifier))))

    def stars(self, workflow: str) -> dict[str, int]:
        """The stars by people with write access, by the latest run of the issue; the newest rating counts."""
        with self._reading() as connection:
            return dict(connection.execute(_STARS, (workflow,)))

    def stars_of_issues(self, workflow: str) -> dict[str, int]:
        """The newest stars of people with write access, by the identifiers of the issues."""
        with self._reading() as connection:
            return dict(connection.execute(_ISSUE_STARS, (workflow,)))

    def pending_feedback(self, workflow: str) -> tuple[StoredFeedback, ...]:
        """The feedback to learn from, oldest first, including learning that a killed daemon left running."""
        with self._reading() as connection:
            sql = f"{_FEEDBACK} WHERE workflow = ? AND learning IN ('waiting', 'running') ORDER BY id"
            return tuple(map(_feedback_of, connection.execute(sql, (workflow,))))

    def begin_learning(self, number: int) -> StoredFeedback:
        """Count another learning run from a feedback."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE feedback SET learning = 'running', attempts = attempts + 1 WHERE id = ?", (number,)
            )
            return _feedback(connection, number)

    def note_learning(self, number: int, learned: Learned) -> None:
        """Store what a learning run has used so far."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE feedback SET learned = ? WHERE id = ? AND learning = 'running'",
                (msgspec.json.encode(learned).decode(), number),
            )

    def learning_tokens(self, workflow: str, since_ms: int) -> int:
        """The tokens of learning from feedback that was last used since then."""
        with self._reading() as connection:
            sql = (
                "SELECT total(learned ->> '$.total_tokens') FROM feedback "
                "WHERE workflow = ? AND learned ->> '$.at_ms' >= ?"
            )
            return int(connection.execute(sql, (workflow, since_ms)).fetchone()[0])

    def end_learning(
        self,
        number: int,
        learned: Learned,
        drafts: Sequence[SkillDraft],
        evidence: Evidence,
        *,
        accept: Collection[str] = (),
        author: str = "",
    ) -> StoredFeedback:
        """Turn the drafts of a learning run into proposals, in one transaction: a crash makes none twice.

        Args:
            number: the number of the feedback.
            learned: what the run changed and used.
            drafts: the drafts of the run.
            evidence: the evidence of the proposals.
            accept: names of skills whose proposals are accepted at once. A proposal that is not based on the
                present version waits anyway.
            author: who accepts them.

        Raises:
            LibraryError: a draft is invalid; nothing is proposed.
        """
        with self._writing() as connection:
            if _feedback(connection, number).learning is not LearningState.RUNNING:
                return _feedback(connection, number)
            made = [self._propose(connection, one, evidence) for one in drafts]
            proposed = [one for one in made if one is not None]
            for one in proposed:
                present = _find(connection, one.text.name)
                is_present = one.base_version == (0 if present is None else present.version)
                if is_present and one.text.name in accept and not _rejected(connection, one.text):
                    self._accept(connection, one.id, author, Origin.LEARNED)
            learned = structs.replace(learned, proposals=tuple(one.id for one in proposed))
            connection.execute(
                "UPDATE feedback SET learning = 'done', learned = ? WHERE id = ?",
                (msgspec.json.encode(learned).decode(), number),
            )
            return _feedback(connection, number)

    def give_back(self, number: int) -> None:
        """Let a feedback wait again, as if the interrupted learning run had never begun."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE feedback SET learning = 'waiting', attempts = attempts - 1 "
                "WHERE id = ? AND learning = 'running'",
                (number,),
            )

    def stop_learning(self, number: int, reason: str, *, again: bool) -> StoredFeedback:
        """Record why a learning run failed; with `again` the feedback waits for another one."""
        state = LearningState.WAITING if again else LearningState.DROPPED
        with self._writing() as connection:
            connection.execute(
                "UPDATE feedback SET learning = ?, reason = ? WHERE id = ?",
                (state.value, reason[:MAX_REASON_CHARS], number),
            )
            return _feedback(connection, number)

    # --- writing -----------------------------------------------------------------------------------------

    def _insert(
        self, connection: sqlite3.Connection, text: SkillText, change: Authorship, origin: Origin
    ) -> LibrarySkill:
        now_ms = self._now_ms()
        row = (text.name, text.description, text.when_to_use, 1, origin.value, now_ms, now_ms)
        (skill_id,) = connection.execute(
            "INSERT INTO skills (name, description, when_to_use, version, origin, created_at_ms, "
            "updated_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id",
            row,
        ).fetchone()
        if origin is Origin.LEARNED:
            change = structs.replace(change, learned=True)
        _write_version(connection, skill_id, 1, text, change, now_ms, origin)
        return _present(connection, text.name)

    def _remove(self, connection: sqlite3.Connection, present: LibrarySkill, change: Authorship) -> None:
        sql = "UPDATE skills SET removed_at_ms = ?, removed_by = ?, removed_because = ? WHERE id = ?"
        row = (self._now_ms(), change.author, change.reason[:MAX_REASON_CHARS], present.id)
        connection.execute(sql, row)

    def _new_version(
        self,
        connection: sqlite3.Connection,
        present: LibrarySkill,
        text: SkillText,
        change: Authorship,
        origin: Origin,
    ) -> LibrarySkill:
        if text == present.text:
            return present
        now_ms, version = self._now_ms(), present.version + 1
        _write_version(connection, present.id, version, text, change, now_ms, origin)
        connection.execute(
            "UPDATE skills SET description = ?, when_to_use = ?, version = ?, updated_at_ms = ?, origin = ? "
            "WHERE id = ?",
            (text.description, text.when_to_use, version, now_ms, origin.value, present.id),
        )
        return _present(connection, present.name)

    def _back_to(
        self, connection: sqlite3.Connection, present: LibrarySkill, earlier: SkillVersion, change: Authorship
    ) -> LibrarySkill:
        sql = "SELECT origin FROM versions WHERE skill_id = ? AND version = ?"
        (origin,) = connection.execute(sql, (present.id, earlier.version)).fetchone()
        return self._new_version(connection, present, earlier.text, change, Origin(origin))

    # --- the file ----------------------------------------------------------------------------------------

    def backup(self, target: Path) -> None:
        """Copy the library, while others use it, into a new file.

        Raises:
            LibraryError: the target exists, or cannot be written.
        """
        with self._reading() as connection, _file_errors(target):
            sqlite.create(target, connection.backup)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with _file_errors(self.path), closing(_open(self.path, self._busy_s)) as connection:
            connection.execute("BEGIN")  # one state of the file for all queries
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with (
            _file_errors(self.path),
            closing(_open(self.path, self._busy_s)) as connection,
            sqlite.transaction(connection),
        ):
            yield connection


def check(path: Path) -> None:
    """Check the whole file.

    Raises:
        LibraryError: the file is damaged or cannot be used.
    """
    with _file_errors(path), closing(_open(path, BUSY_S)) as connection:
        damage = sqlite.damage(connection)
    if damage is not None:
        raise LibraryError(f"the library {path}: it is damaged ({damage})", hint=_DAMAGED_HINT)


def _open(path: Path, busy_s: float) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        with suppress(FileExistsError):  # another process has just created it
            sqlite.create(path, _fill)
    if not sqlite.is_regular(path):
        raise LibraryError(f"{path} is not a regular file", hint=_MOVE_HINT)
    if path.stat().st_size == 0:
        raise LibraryError(
            f"the library {path} is empty",
            hint="restore a backup, or remove it to start with an empty library",
        )
    connection = sqlite.connect(path, "rw", busy_s=busy_s)
    try:
        _refuse_others(path, connection)
        if sqlite.number(connection, "user_version") < VERSION:
            with sqlite.transaction(connection):
                sqlite.migrate(connection, _STEPS, VERSION)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_others(path: Path, connection: sqlite3.Connection) -> None:
    if sqlite.number(connection, "application_id") != APPLICATION_ID:
        raise LibraryError(f"{path} is the database of another program", hint=_MOVE_HINT)
    version = sqlite.number(connection, "user_version")
    if version > VERSION:
        raise LibraryError(
            f"a newer symphony wrote the library {path} (schema {version}, this one knows {VERSION})",
            hint="upgrade symphony, or set agent.library.path to another file",
        )


def _fill(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    with sqlite.transaction(connection):
        sqlite.migrate(connection, _STEPS, VERSION)
    connection.execute("PRAGMA journal_mode = WAL")


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and of the file system into `LibraryError`."""
    try:
        yield
    except FileExistsError as error:
        raise LibraryError(f"{path} exists", hint="name a file that does not exist yet") from error
    except (OSError, *sqlite.ERRORS, sqlite.DamagedError) as error:
        why, hint = sqlite.explain(error)
        if sqlite.is_damage(error):
            why, hint = f"it is damaged ({error})", _DAMAGED_HINT
        raise LibraryError(
            f"the library {path}: {why}", hint=hint, retryable=sqlite.is_temporary(error)
        ) from error


# --- rows ------------------------------------------------------------------------------------------------


def _find(connection: sqlite3.Connection, name: str) -> LibrarySkill | None:
    row = connection.execute(f"{_HEADS} AND name = ?", (name,)).fetchone()
    if row is None:
        return None
    head = _head(row)
    content, extra = connection.execute(_CONTENT, (head.id, head.version)).fetchone()
    return LibrarySkill(**structs.asdict(head), content=content, extra=json.loads(extra))


def _present(connection: sqlite3.Connection, name: str) -> LibrarySkill:
    found = _find(connection, name)
    if found is None:
        names = [
            str(row[0]) for row in connection.execute("SELECT name FROM skills WHERE removed_at_ms IS NULL")
        ]
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}?" if close else "`symphony library list` names the skills"
        raise NotInLibraryError(f"the library has no skill {name[:80]}", hint=hint)
    return found


def _head(row: tuple[Any, ...]) -> SkillHead:
    identifier, name, description, when_to_use, version, origin, created, updated = row
    return SkillHead(
        id=identifier,
        name=name,
        description=description,
        when_to_use=when_to_use,
        version=version,
        origin=Origin(origin),
        created_at_ms=created,
        updated_at_ms=updated,
    )


def _text(name: str, columns: Sequence[str]) -> SkillText:
    description, when_to_use, content, extra = columns
    return SkillText(
        name=name,
        description=description,
        when_to_use=when_to_use,
        content=content,
        extra=json.loads(extra),
    )


def _version(row: tuple[Any, ...]) -> SkillVersion:
    number, name, description, when_to_use, content, extra, author, reason, run_id, at_ms, learned = row
    return SkillVersion(
        version=number,
        text=_text(name, (description, when_to_use, content, extra)),
        change=Authorship(
            author=author, reason=reason, run_id=run_id, learned=bool(learned) and run_id is None
        ),
        at_ms=at_ms,
    )


def _version_of(connection: sqlite3.Connection, skill: LibrarySkill, number: int) -> SkillVersion:
    row = connection.execute(f"{_VERSION} AND versions.version = ?", (skill.id, number)).fetchone()
    if row is None:
        raise NotInLibraryError(
            f"{skill.name} has no version {number}", hint=f"its versions are 1 to {skill.version}"
        )
    return _version(row)


def _write_version(
    connection: sqlite3.Connection,
    skill_id: int,
    version: int,
    text: SkillText,
    change: Authorship,
    at_ms: int,
    origin: Origin,
) -> None:
    row = (
        skill_id, version, text.description, text.when_to_use, text.content, json.dumps(text.extra),
        change.author, change.reason[:MAX_REASON_CHARS], change.run_id, at_ms,
        change.by_agent, origin.value, body_fingerprint(text),
    )  # fmt: skip
    connection.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _clean_version(connection: sqlite3.Connection, skill: LibrarySkill, since_ms: int) -> SkillVersion | None:
    """The newest version without any text that agents wrote since then; `None` if there is none."""
    clean: list[SkillVersion] = []
    learned: list[SkillText] = []
    is_learned = False
    for row in connection.execute(f"{_VERSION} ORDER BY versions.version", (skill.id,)):
        version = _version(row)
        is_learned = all(one.text != version.text for one in clean) and (
            is_learned or (version.change.by_agent and version.at_ms >= since_ms) or version.text in learned
        )
        if is_learned:
            learned.append(version.text)
        else:
            clean.append(version)
    return clean[-1] if clean else None


def _removed(connection: sqlite3.Connection, text: SkillText) -> str | None:
    """Why agents may not add this text: a person removed the skill or its text and did not restore it."""
    sql = "SELECT min(removed_at_ms IS NOT NULL) FROM skills WHERE name = ?"
    if connection.execute(sql, (text.name,)).fetchone()[0]:
        return _RETIRED_REASON.format(text.name)
    if connection.execute(_REMOVED_BODY, (body_fingerprint(text),)).fetchone()[0]:
        return _REMOVED_REASON.format(text.name)
    return None


def _rejected(connection: sqlite3.Connection, text: SkillText) -> list[SkillText]:
    """The rejected texts with the same body."""
    rows = connection.execute(_REJECTED_BODY, (body_fingerprint(text),))
    return [_text(text.name, row) for row in rows]


def _refuse(connection: sqlite3.Connection, text: SkillText, change: Authorship) -> None:
    """Refuse a text of an agent that people have already refused.

    Raises:
        LibraryError: a person removed the skill or its text, or rejected its body.
    """
    if not change.by_agent:
        return
    if (reason := _removed(connection, text)) is not None:
        raise LibraryError(reason, hint="a person can add it again")
    if _rejected(connection, text):
        raise LibraryError(f"a person rejected this text of {text.name}", hint="a person can add it")


def _assignment(row: tuple[Any, ...]) -> Assignment:
    kind, target, names, at_ms = row
    return Assignment(kind=TargetKind(kind), target=target, names=tuple(json.loads(names)), at_ms=at_ms)


def _names(connection: sqlite3.Connection, kind: TargetKind, target: str) -> tuple[str, ...] | None:
    sql = "SELECT names FROM assignments WHERE kind = ? AND target = ?"
    row = connection.execute(sql, (kind.value, target)).fetchone()
    return None if row is None else tuple(json.loads(row[0]))


def _proposal(connection: sqlite3.Connection, number: int) -> Proposal:
    row = connection.execute(f"{_PROPOSAL} WHERE id = ?", (number,)).fetchone()
    if row is None:
        raise NotInLibraryError(
            f"there is no proposal {number}", hint="`symphony library proposals` lists them"
        )
    return _proposal_of(connection, row)


def _proposal_of(connection: sqlite3.Connection, row: tuple[Any, ...]) -> Proposal:
    number, name, skill_id, base_version, *texts, state, evidence, created, decided, by, reason, found = row
    before = None
    if skill_id is not None:
        earlier = connection.execute(
            f"{_VERSION} AND versions.version = ?", (skill_id, base_version)
        ).fetchone()
        before = None if earlier is None else _version(earlier).text
    return Proposal(
        id=number,
        text=_text(name, texts),
        skill_id=skill_id,
        base_version=base_version,
        before=before,
        state=ProposalState(state),
        evidence=Evidence(**json.loads(evidence)),
        created_at_ms=created,
        decided_at_ms=decided,
        decided_by=by,
        reason=reason,
        evaluation=None if found is None else msgspec.json.decode(found, type=Evaluation),
    )


def _feedback(connection: sqlite3.Connection, number: int) -> StoredFeedback:
    return _feedback_of(connection.execute(f"{_FEEDBACK} WHERE id = ?", (number,)).fetchone())


def _feedback_of(row: tuple[Any, ...]) -> StoredFeedback:
    number, rating, learning, attempts, reason, learned, at_ms = row
    return StoredFeedback(
        id=number,
        rating=msgspec.json.decode(rating, type=Rating),
        learning=LearningState(learning),
        attempts=attempts,
        reason=reason,
        learned=None if learned is None else msgspec.json.decode(learned, type=Learned),
        at_ms=at_ms,
    )
