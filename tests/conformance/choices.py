"""What the specification leaves to the implementation, and what this one does.

Every entry names where the decision lives and the tests that would fail if it were another one. A test that is named
here and does not exist makes the check fail, just as a place that is not there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Group(StrEnum):
    """Why there is something to choose; the headings of the report."""

    POLICY = "Policies an implementation has to state"
    OPEN = "Left open by the specification"
    DIFFERENCE = "Where its parts differ from each other or from the program it comes with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One question with our answer.

    `places` are files of this repository, best first; `tests` are places and names as in `tests/unit/test_a.py::test_b`.
    """

    id: str
    group: Group
    question: str
    ours: str
    places: tuple[str, ...]
    tests: tuple[str, ...]


def _choice(
    choice_id: str, group: Group, question: str, ours: str, *, places: tuple[str, ...], tests: tuple[str, ...]
) -> Choice:
    return Choice(
        id=choice_id,
        group=group,
        question=question,
        ours=ours,
        places=tuple(_PLACES.get(place, place) for place in places),
        tests=tuple(_expanded(test) for test in tests),
    )


_PLACES = {"README": "README.md", "workflow-file": "docs/workflow-file.md", "commands": "docs/commands.md"}
_SUITES = {
    "life": "tests/integration/workspaces/test_manager.py",
    "policy": "tests/unit/agents/codex/test_session_policy.py",
    "scripted": "tests/integration/agents/test_scripted_session.py",
    "settings": "tests/unit/config/test_settings.py",
    "template": "tests/unit/config/test_template.py",
    "cycle": "tests/unit/scheduler/test_polling.py",
    "retries": "tests/unit/scheduler/test_runs_retries.py",
    "blocks": "tests/unit/scheduler/test_blocks.py",
    "machine": "tests/unit/scheduler/test_machine.py",
    "silence": "tests/unit/scheduler/test_runs_stalls.py",
    "store": "tests/integration/config/test_store.py",
    "service": "tests/integration/daemon/test_service.py",
    "rows": "tests/integration/daemon/test_attempts.py",
    "logs": "tests/unit/observability/test_logs.py",
    "notes": "tests/unit/daemon/test_comments.py",
    "mapping": "tests/unit/agents/codex/test_protocol_events.py",
}


def _expanded(test: str) -> str:
    suite, _, name = test.partition("::")
    return f"{_SUITES.get(suite, suite)}::{name}"


# One fact, one line: what follows is read as a table.
# fmt: off
def _policies() -> Iterator[Choice]:
    group = Group.POLICY
    yield _choice(
        "approval", group,
        "What happens when an agent wants something approved?",
        "Agents are told `never`: what the sandbox forbids fails, and the model is told. One that asks all the same is declined and its turn goes on; `codex.on_approval` may accept for the session, or block the issue for a person.",
        places=("README", "src/symphony/agents/codex/session.py"),
        tests=("tests/unit/agents/codex/test_protocol_params.py::test_the_defaults_are_the_documented_posture", "policy::test_an_approval_is_declined_unless_configured_otherwise", "policy::test_accepting_holds_for_the_session_where_that_is_offered", "scripted::test_an_approval_is_answered_by_policy", "scripted::test_a_blocked_approval_ends_the_run_and_runs_nothing"),
    )
    yield _choice(
        "sandbox", group,
        "What may an agent touch?",
        "Its workspace and that workspace's `.git`; no network, no temp directory, no neighbour. An explicit `codex.turn_sandbox_policy` is passed on unchanged. A host that cannot sandbox is refused at the start.",
        places=("README", "workflow-file", "src/symphony/agents/codex/protocol.py"),
        tests=("tests/unit/agents/codex/test_protocol_params.py::test_the_defaults_are_the_documented_posture", "tests/integration/agents/test_real_codex.py::test_siblings_temp_and_network_are_out_of_reach", "tests/integration/agents/test_real_codex.py::test_an_explicit_sandbox_policy_is_passed_unchanged", "tests/integration/agents/test_preflight.py::test_a_failing_sandbox_is_refused_with_what_to_do"),
    )
    yield _choice(
        "user-input", group,
        "What happens when an agent asks a person?",
        "Under `never`, approvals of the agent's own MCP tools are answered. Any other question and every elicitation ends the run, and the issue is blocked until a person changes it. Nothing waits without end.",
        places=("src/symphony/agents/codex/session.py", "src/symphony/scheduler/blocks.py"),
        tests=("policy::test_mcp_approvals_are_given_under_never_by_preference", "policy::test_any_other_question_needs_a_person", "policy::test_an_elicitation_is_declined_and_needs_a_person", "scripted::test_a_question_to_a_person_ends_the_run_within_a_bound", "blocks::test_an_agent_that_needs_a_person_blocks_its_issue"),
    )
    yield _choice(
        "trust", group,
        "Who is trusted, and with what?",
        "`WORKFLOW.md` and its hooks are trusted as the operator. Issues, skills, repository content and all that an agent writes are not: they are data in a prompt, never rendered twice, never part of a command line, and the daemon never runs git with what an agent wrote into `.git`.",
        places=("README", "docs/security.md", "docs/adr/0003-workspaces.md"),
        tests=("template::test_issue_text_is_data", "tests/integration/workspaces/test_hostile_git_dir.py::test_no_trap_is_sprung_and_the_work_is_delivered", "tests/acceptance/test_bad_input.py::test_hostile_titles_are_data", "tests/unit/trackers/markdown/test_board.py::test_hostile_text_stays_text"),
    )
    yield _choice(
        "hook-trust", group,
        "How do hooks run?",
        "As the operator, by `sh -lc` in the workspace, in the daemon's environment without the tracker's secrets and with `SYMPHONY_ISSUE_ID`, `SYMPHONY_ISSUE_IDENTIFIER`, `SYMPHONY_WORKSPACE` and `SYMPHONY_ATTEMPT`. At the timeout all that a hook started ends. A hook from which a secret cannot be taken away does not run.",
        places=("workflow-file", "src/symphony/workspaces/hooks.py"),
        tests=("life::TestHooks::test_a_hook_sees_the_environment_but_no_secret_and_no_foreign_git", "life::TestHooks::test_a_hook_is_not_run_where_a_secret_cannot_be_taken_away", "life::TestHooks::test_a_hook_that_takes_too_long_ends_with_all_it_started", "life::TestHooks::test_after_create_runs_in_the_populated_directory_and_only_once"),
    )
    yield _choice(
        "secrets", group,
        "How are secrets kept from agents and from what people read?",
        "An agent's environment is an allow-list; variables that `tracker` refers to are unset even where a login profile exports them again. Known values and what has the shape of a credential are masked in every log line, comment and answer.",
        places=("README", "src/symphony/domain/redaction.py", "src/symphony/agents/environment.py"),
        tests=("tests/unit/agents/test_environment.py::test_a_secret_never_passes_whoever_asks", "tests/integration/agents/test_process.py::test_a_secret_that_the_login_profile_exports_again_is_unset", "logs::test_a_known_value_is_masked_wherever_it_stands", "notes::test_a_secret_never_reaches_a_comment"),
    )
    yield _choice(
        "log-sinks", group,
        "Where do logs go?",
        "To stderr, as lines for people on a terminal and as one JSON object per line elsewhere; a service manager or a shell keeps them. With `--logs-root` also to a file that rotates. A sink that refuses a line loses that line and nothing else.",
        places=("commands", "src/symphony/observability/logs.py"),
        tests=("logs::test_people_at_a_terminal_get_lines_and_machines_get_json", "logs::test_a_sink_that_refuses_a_line_loses_that_line_only", "tests/unit/observability/test_logs_files.py::test_the_file_is_rotated_and_five_old_ones_are_kept", "tests/acceptance/test_logs.py::test_json_lines_carry_issue_and_run"),
    )
    yield _choice(
        "http-access", group,
        "Who may ask over HTTP?",
        "On the control socket whoever may open its file; on TCP only who shows the token or the cookie of a signed-in browser, on the loopback interface too, and no web page of another site. `server.public_reads` lets programs of this machine read without.",
        places=("src/symphony/api/access.py",),
        tests=("tests/unit/api/test_access.py::test_a_page_of_another_origin_may_not_write", "tests/unit/api/test_access.py::test_off_the_machine_everything_needs_the_token", "tests/unit/api/test_access.py::test_on_the_control_socket_only_names_that_lead_here_from_the_network_are_refused"),
    )
    yield _choice(
        "restart", group,
        "What does a restart bring back?",
        "Claims, retries, blocks, budgets and conversations, from the journal. Tracker and file system are the truth, so losing the journal costs history alone. Processes of a dead daemon are ended first, found by the mark they carry; then issues are polled, and workspaces are used again as they are.",
        places=("docs/scheduling.md", "docs/RELIABILITY.md", "src/symphony/daemon/recovery.py"),
        tests=("tests/acceptance/test_restart.py::test_kill_9_in_mid_run_leaves_one_agent_per_issue_and_finishes_it", "tests/unit/daemon/test_recovery.py::test_what_carries_the_mark_or_stands_in_the_journal_ends_and_nothing_else_does"),
    )


def _open() -> Iterator[Choice]:
    group = Group.OPEN
    yield _choice(
        "workspace-key", group,
        "How does an unsafe identifier become the name of a directory?",
        "One `_` for each code point outside `[A-Za-z0-9._-]`, then `--` and the first 16 hexadecimal digits of the identifier's SHA-256. A name that git or a file system could misunderstand is refused.",
        places=("src/symphony/domain/issue.py",),
        tests=("tests/unit/domain/test_issue_ids.py::test_the_key_is_the_one_of_the_rule", "tests/unit/domain/test_issue_ids.py::test_one_underscore_stands_for_each_code_point", "tests/unit/workspaces/test_layout.py::TestNames::test_unsafe_keys_are_refused"),
    )
    yield _choice(
        "sweep", group,
        "How are workspaces of ended issues found?",
        "The tracker is asked by id about the issues that have a workspace, at the start and then every ten minutes, instead of for a list of every issue that ever ended. A failure costs a warning.",
        places=("docs/specification.md", "src/symphony/scheduler/machine.py"),
        tests=("cycle::test_idle_workspaces_are_refreshed_by_id_and_ended_ones_removed", "cycle::test_idle_workspaces_are_refreshed_every_ten_minutes_only", "cycle::test_the_check_of_idle_workspaces_precedes_the_first_poll_even_if_it_fails"),
    )
    yield _choice(
        "stale-file", group,
        "What if something else stands where a workspace belongs?",
        "A stale regular file is replaced. A symlink and a special file are refused, wherever they lead.",
        places=("src/symphony/workspaces/directories.py",),
        tests=("life::TestCreation::test_a_stale_file_in_its_place_is_replaced", "life::TestCreation::test_a_link_to_another_workspace_is_refused", "life::TestCreation::test_a_special_file_is_refused"),
    )
    yield _choice(
        "population", group,
        "Who fills a new workspace?",
        "The daemon, where `workspace.repo` is set: a clone that borrows the objects of one mirror, on a branch of the issue's own; `after_create` runs in it. Without it, hooks do. A workspace is never reset.",
        places=("workflow-file", "docs/adr/0003-workspaces.md", "src/symphony/workspaces/mirror.py"),
        tests=("tests/integration/workspaces/test_populate.py::test_a_new_workspace_is_a_clean_clone_on_the_issues_branch", "tests/integration/workspaces/test_populate.py::test_an_existing_workspace_is_reused_and_never_reset", "life::TestHookPopulated::test_pushed_work_is_removable_unpushed_work_is_not"),
    )
    yield _choice(
        "unfinished-work", group,
        "Is a workspace of an ended issue removed whatever it holds?",
        "Not while it holds work that is nowhere else: uncommitted files (unless `workspace.keep_dirty` is off) or commits that could not be delivered keep it, with a warning that says so.",
        places=("workflow-file", "src/symphony/workspaces/manager.py"),
        tests=("life::TestRemoval::test_uncommitted_work_keeps_it", "life::TestRemoval::test_uncommitted_work_goes_where_the_operator_does_not_keep_it", "life::TestRemoval::test_commits_beside_the_branch_keep_it"),
    )
    yield _choice(
        "retry-end", group,
        "Is a failing issue retried for ever?",
        "After `agent.budget.max_attempts_without_progress` attempts without a commit or a changed file a person is asked on the issue. Attempts that an outage ended do not count.",
        places=("workflow-file", "src/symphony/scheduler/blocks.py"),
        tests=("blocks::test_three_failures_without_progress_block_the_issue", "blocks::test_progress_resets_the_count", "blocks::test_an_outage_neither_blocks_nor_resets_the_count"),
    )
    yield _choice(
        "unblocking", group,
        "What releases a blocked issue?",
        "A change of its state, labels, title or description by somebody other than the session itself, its end, or its absence. Comments do not. What an operator stopped is released by `retry`, `unblock` or a move only.",
        places=("src/symphony/scheduler/blocks.py",),
        tests=("blocks::test_a_change_of_the_issue_unblocks_it", "blocks::test_no_other_change_unblocks_it", "blocks::test_a_blocked_issue_that_left_is_released", "blocks::test_what_the_session_did_to_its_own_issue_does_not_unblock_it"),
    )
    yield _choice(
        "reload", group,
        "How is a changed workflow noticed?",
        "By a watch of its directory, and by a look at the file before each poll for what a watch misses. Settings and prompt change together, and only after tracker and agent have accepted them.",
        places=("src/symphony/config/loader.py",),
        tests=("store::test_settings_and_prompt_change_together", "store::test_a_second_write_within_one_tick_of_the_clock_is_seen", "store::test_what_the_composer_refuses_is_rejected_too", "service::test_a_workflow_file_that_cannot_be_watched_is_still_looked_at"),
    )
    yield _choice(
        "template-at-load", group,
        "When is a mistake in the prompt's template told?",
        "When the file is read, with its line, for every branch of the template; what only an issue's data can show fails that attempt.",
        places=("workflow-file", "src/symphony/config/template.py"),
        tests=("template::test_unknown_names_are_refused_at_load_on_every_branch", "template::test_what_only_rendering_shows_fails_the_attempt"),
    )
    yield _choice(
        "environment", group,
        "May the environment override a setting?",
        "Only `SYMPHONY_AGENT_SKILLS_ENABLED`. Every other variable acts where a value is exactly `$NAME`.",
        places=("workflow-file", "src/symphony/config/secrets.py"),
        tests=("settings::test_one_variable_overrides_whether_skills_are_used", "settings::test_no_other_variable_overrides_anything"),
    )
    yield _choice(
        "unknown-keys", group,
        "What about keys nobody knows?",
        "They are ignored with one warning that suggests the key that may be meant; a tracker judges its own.",
        places=("workflow-file", "src/symphony/config/errors.py"),
        tests=("settings::test_unknown_keys_are_warned_about_with_a_suggestion",),
    )
    yield _choice(
        "literal-secrets", group,
        "May a secret stand in the workflow file itself?",
        "It works and is masked everywhere, but an agent can read the file: a warning tells the place, never the value.",
        places=("src/symphony/config/secrets.py",),
        tests=("tests/unit/config/test_secrets_confidential.py::test_a_secret_in_the_file_is_told_by_its_place_alone", "tests/unit/config/test_secrets_confidential.py::test_no_text_form_of_a_workflow_holds_its_secret"),
    )
    yield _choice(
        "flat-keys", group,
        "Are the flat tracker keys of older files understood?",
        "For `kind: linear`, where they fill only what `tracker.provider` leaves out; they mean nothing to other trackers.",
        places=("src/symphony/config/validation.py",),
        tests=("tests/unit/config/test_loader_compatibility.py::test_flat_keys_fill_only_what_is_absent", "tests/unit/config/test_loader_compatibility.py::test_flat_keys_mean_nothing_to_other_trackers"),
    )
    yield _choice(
        "pause", group,
        "What if a tracker asks to be left alone for a while?",
        "The next request waits as long as it asked, up to a bound; all that waits then shares one request.",
        places=("src/symphony/scheduler/breaker.py",),
        tests=("tests/unit/scheduler/test_breaker.py::test_the_next_poll_waits_as_long_as_the_tracker_asked", "tests/unit/scheduler/test_breaker.py::test_an_excessive_pause_is_cut", "tests/unit/scheduler/test_breaker.py::test_refreshes_that_wait_for_the_end_of_a_pause_share_one_request"),
    )
    yield _choice(
        "agent-tools", group,
        "What may an agent do to the tracker?",
        "It sees, comments on and moves its own issue, through the daemon and with the daemon's credential; never another one.",
        places=("docs/trackers/markdown.md", "src/symphony/trackers/markdown/tracker.py"),
        tests=("tests/unit/trackers/markdown/test_tracker.py::test_a_session_sees_its_own_issue", "tests/unit/trackers/markdown/test_tracker.py::test_a_session_moves_its_own_issue_to_configured_states_only", "tests/acceptance/test_board.py::test_a_session_comments_on_and_moves_its_own_issue_only"),
    )
    yield _choice(
        "own-comments", group,
        "Does the daemon itself write to the tracker?",
        "One comment per issue and purpose, edited in place, for what a person must know: malformed skills, and why an issue is blocked. A failure to write it is logged and holds nothing back; it is written once the tracker is back.",
        places=("docs/operations.md", "src/symphony/trackers/comments.py", "src/symphony/daemon/comments.py"),
        tests=("notes::test_a_note_is_posted_once_and_edited_in_place", "notes::test_a_failing_comment_is_a_warning_and_arrives_later", "notes::test_a_hanging_comment_is_tried_again"),
    )
    yield _choice(
        "shutdown", group,
        "What does a signal do?",
        "SIGTERM starts nothing new and lets running turns end, for as long as `agent.drain_timeout_ms`; a second one, or SIGINT, stops them. SIGHUP reads the workflow again. An end in order exits with 0.",
        places=("commands", "src/symphony/daemon/shutdown.py"),
        tests=("tests/acceptance/test_restart.py::test_the_first_signal_lets_running_turns_end", "tests/acceptance/test_restart.py::test_a_second_signal_or_an_interrupt_stops_at_once_and_leaves_nothing", "machine::test_a_drain_does_not_wait_longer_than_its_limit"),
    )
    yield _choice(
        "exit-codes", group,
        "Which exit codes are there?",
        "0 done, 1 failure, 2 a wrong command line, 3 an invalid configuration, 4 not authenticated, 5 the daemon cannot be reached, 6 an agent at a limit or in an outage kept `run --once` from going on.",
        places=("commands", "src/symphony/cli/failures.py"),
        tests=("tests/acceptance/test_bad_input.py::test_a_usage_error_exits_with_2", "tests/acceptance/test_workflow_file.py::test_a_mistake_is_named_with_its_place_and_a_hint"),
    )


def _differences() -> Iterator[Choice]:
    group = Group.DIFFERENCE
    yield _choice(
        "ended-retry", group,
        "A due retry finds its issue ended: clean the workspace or only release it?",
        "Clean it, then release the issue.",
        places=("src/symphony/scheduler/runs.py",),
        tests=("retries::test_a_due_retry_of_an_ended_issue_cleans_and_releases",),
    )
    yield _choice(
        "after-run", group,
        "Does `after_run` follow a failed `before_run` and a cancellation?",
        "Always, once there is a workspace.",
        places=("src/symphony/daemon/runs/worker.py",),
        tests=("rows::test_after_run_follows_every_attempt_that_had_a_workspace", "life::TestHooks::test_after_run_works_shielded_in_a_cancelled_scope"),
    )
    yield _choice(
        "render-first", group,
        "Is the prompt rendered before or after the agent is started?",
        "Before: a mistake in the template costs no process.",
        places=("docs/specification.md", "src/symphony/daemon/runs/worker.py"),
        tests=("rows::test_a_prompt_that_cannot_be_rendered_starts_no_agent_and_is_retried",),
    )
    yield _choice(
        "state-limits", group,
        "Does a bad limit of one state refuse the whole file?",
        "No: the entry is left out with a warning.",
        places=("src/symphony/config/settings.py",),
        tests=("settings::test_state_limits_are_normalised_and_bad_entries_are_left_out",),
    )
    yield _choice(
        "stall-off", group,
        "Is a negative `stall_timeout_ms` an error?",
        "No: 0 or less switches the watch off.",
        places=("workflow-file", "src/symphony/scheduler/runs.py"),
        tests=("settings::test_the_stall_timeout_may_be_switched_off", "silence::test_a_limit_of_zero_or_less_disables_the_check"),
    )
    yield _choice(
        "stall-clock", group,
        "Does the time of hooks count as silence of the agent?",
        "No: only an agent that was launched and is in a turn can be silent.",
        places=("src/symphony/scheduler/runs.py",),
        tests=("silence::test_time_before_the_agent_is_launched_is_not_silence", "silence::test_time_for_hooks_and_delivery_is_not_silence"),
    )
    yield _choice(
        "machine-sleep", group,
        "Is an agent silent while the whole machine sleeps?",
        "No: a clock that jumped is noticed, and the whole limit counts again.",
        places=("src/symphony/scheduler/runs.py",),
        tests=("tests/unit/scheduler/test_runs_stalls.py::test_agents_of_a_suspended_machine_are_not_stalled", "tests/unit/scheduler/test_runs_stalls.py::test_after_a_suspension_the_whole_limit_counts_again"),
    )
    yield _choice(
        "stderr", group,
        "Is the agent's stderr read as part of the protocol?",
        "No: it goes to a private file of the run, and its last words into the failure.",
        places=("src/symphony/processes/local.py",),
        tests=("scripted::test_a_flood_on_stderr_holds_nothing_up", "scripted::test_the_end_of_the_process_in_a_turn_is_port_exit_with_its_last_words"),
    )
    yield _choice(
        "turn-status", group,
        "Is every `turn/completed` a success?",
        "No: its `status` decides, and a status nobody knows is no success.",
        places=("src/symphony/agents/codex/protocol.py",),
        tests=("mapping::test_a_turn_completed_with_status_failed_is_a_failure", "mapping::test_a_turn_completed_with_status_interrupted_is_cancelled", "mapping::test_an_unknown_status_is_no_success"),
    )
    yield _choice(
        "read-timeout", group,
        "Do other messages extend the time for an answer?",
        "No: `read_timeout_ms` is a deadline for the whole request, and what arrives meanwhile is kept.",
        places=("src/symphony/agents/codex/session.py",),
        tests=("tests/unit/agents/test_session.py::test_chatter_does_not_extend_the_deadline_of_a_request", "tests/unit/agents/test_session.py::test_what_comes_before_an_answer_is_kept_for_the_turn"),
    )
    yield _choice(
        "http-errors", group,
        "Which status has a snapshot that is late or not there?",
        "503, with the same body that would otherwise come with 200.",
        places=("src/symphony/api/app.py",),
        tests=("tests/unit/api/test_app.py::test_a_daemon_that_cannot_answer_now",),
    )
    yield _choice(
        "revalidation", group,
        "Is an issue started from the poll that found it?",
        "Never: it is asked for by id and judged again. All ids that are wanted at a time share one request.",
        places=("docs/adr/0002-coalesced-refresh.md", "src/symphony/scheduler/polling.py"),
        tests=("cycle::test_a_candidate_is_refreshed_before_it_starts", "cycle::test_an_issue_that_changed_since_the_poll_is_not_started"),
    )
    yield _choice(
        "full-state", group,
        "Does a full state end the search for candidates?",
        "No: it skips that issue only; the limit over all ends it.",
        places=("src/symphony/scheduler/polling.py",),
        tests=("cycle::test_a_full_state_skips_that_issue_and_not_the_rest", "cycle::test_candidates_start_in_order_while_slots_remain"),
    )
    yield _choice(
        "acknowledgement", group,
        "Must an operator acknowledge that agents run unguarded?",
        "Only where the settings take the sandbox away, at the start and at a reload; elsewhere the option means nothing.",
        places=("commands", "src/symphony/daemon/admission.py"),
        tests=("tests/integration/daemon/test_reload.py::test_a_reload_cannot_take_the_sandbox_away_unnoticed",),
    )
# fmt: on


def _choices() -> Iterator[Choice]:
    yield from _policies()
    yield from _open()
    yield from _differences()


CHOICES: tuple[Choice, ...] = tuple(_choices())
"""Every choice, in the order of the report."""
