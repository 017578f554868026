"""The skips that are permitted, each with its reason. Any other skipped test fails the check.

A skip whose program CI installs is permitted only where nobody asked for the real thing: with
`SYMPHONY_REQUIRE_REAL=1` it is a failure.
"""

from dataclasses import dataclass

REQUIRE_REAL = "SYMPHONY_REQUIRE_REAL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Tests that say `reason` may be skipped, because of `why`; never where the real thing is `required`."""

    reason: str
    why: str
    required: bool = False


PERMITTED = (
    Skip(reason="git-lfs is not installed", why="git-lfs comes from Debian's packages", required=True),
    Skip(reason="no chromium: install it (apt install chromium)", why="it is one of Debian's packages", required=True),
    Skip(reason="root may write everywhere", why="the case needs a user whom permissions hold"),
    Skip(reason="only root can give a file to somebody else", why="the case needs root"),
    Skip(reason="no Claude Code: put `claude` on PATH or name it in SYMPHONY_TEST_CLAUDE", why="Claude Code is not installed everywhere", required=True),
    Skip(reason="no Codex: put `codex` on PATH or name it in SYMPHONY_TEST_CODEX", why="Codex is not installed everywhere", required=True),
    Skip(reason="no unshare(1) to take user namespaces away with", why="the case needs a host with that program"),
    Skip(reason="this machine has no user namespaces to take away", why="the case needs a host that has them"),
    Skip(reason="no mount namespace to make a small disk in", why="the case needs a host that has them"),
    Skip(reason="a corpus of skills is not part of the repository (set SYMPHONY_SKILL_CORPUS)", why="skills of others are not ours to hand on"),
    Skip(reason="no subreapers", why="Linux alone has them"),
    Skip(reason="the schemas of the vendors are not part of the repository (set SYMPHONY_VENDOR_SCHEMAS)", why="what vendors publish is theirs to hand on"),
    Skip(reason="no control group that this user may divide", why="the case needs a group of one's own, or root's"),
    Skip(reason="GitHub's GraphQL schema is not part of the repository (set SYMPHONY_GITHUB_GRAPHQL)", why="it comes from npm"),
    Skip(reason="no Redmine: name one in SYMPHONY_TEST_REDMINE, and its administrator's key in SYMPHONY_TEST_REDMINE_KEY", why="a server of Debian's packages is not everywhere", required=True),
    Skip(reason="no Backlog.md: put `backlog` on PATH or name it in SYMPHONY_TEST_BACKLOG", why="it comes from npm", required=True),
    Skip(reason="no emulator of GitHub: name npm's `emulate` 0.11.2 in SYMPHONY_TEST_EMULATE", why="it comes from npm", required=True),
    Skip(reason="no Ray: name a Python that has it in SYMPHONY_TEST_RAY", why="it comes from PyPI, in an environment of its own", required=True),
    Skip(reason="no Ray cluster: its network namespaces take root and iproute2", why="neither is everywhere"),
    Skip(reason="no container here: it takes root, buildah, systemd-nspawn and SYMPHONY_TEST_BASE", why="images are built and run by Debian's packages, as root", required=True),
    Skip(reason="no hadolint: name it in SYMPHONY_TEST_HADOLINT", why="it comes from PyPI, for some machines", required=True),
    Skip(reason="no check-jsonschema: name it in SYMPHONY_TEST_CHECK_JSONSCHEMA", why="it comes from PyPI, with the schema of compose files", required=True),
    Skip(reason="no kubernetes-validate: name it in SYMPHONY_TEST_KUBERNETES_VALIDATE", why="it comes from PyPI, with the schemas of Kubernetes", required=True),
    Skip(reason="GitHub's example deliveries are not part of the repository (set SYMPHONY_GITHUB_HOOKS)", why="they come from npm"),
    Skip(reason="no tree to boot: make one with .ci/boot-tree and name it in SYMPHONY_BOOT_TREE", why="it is made of Debian's packages", required=True),
    Skip(reason="nothing can be booted: that takes systemd-nspawn, and root", why="neither is everywhere", required=True),
    Skip(reason="nothing can be booted: no mount namespace of its own", why="a container may lack the right to one"),
    Skip(reason="the tree to boot has another Python than these tests, which could not load their libraries", why="libraries are made for one Python"),
    Skip(reason="no systemd-analyze to judge a unit with", why="systemd is not everywhere", required=True),
    Skip(reason="not a git checkout, so there is nothing to clone", why="an unpacked archive has no history"),
    Skip(reason="no gemini: `make agents` installs it, and names it in SYMPHONY_TEST_GEMINI", why="a real agent that CI does not install"),
    Skip(reason="no opencode: `make agents` installs it, and names it in SYMPHONY_TEST_OPENCODE", why="a real agent that CI does not install"),
    Skip(reason="no codex-acp: `make agents` installs it, and names it in SYMPHONY_TEST_CODEX_ACP", why="a real agent that CI does not install"),
    Skip(reason="no claude-agent-acp: `make agents` installs it, and names it in SYMPHONY_TEST_CLAUDE_ACP", why="a real agent that CI does not install"),
    Skip(reason="its model judges what would be asked: the codex backend shows this", why="codex-acp asks otherwise"),
    Skip(reason="the agent has no resume, as its capabilities say", why="Gemini CLI goes on with no session"),
    Skip(reason="no aider: put `aider` on PATH or name it in SYMPHONY_TEST_AIDER", why="a real agent that CI does not install"),
    Skip(reason="no bubblewrap: install it (apt install bubblewrap)", why="it is one of Debian's packages", required=True),
    Skip(reason="no permission for bubblewrap to make user namespaces on this machine", why="the case needs a host that permits them", required=True),
)  # fmt: skip


def objection(reason: str, *, require_real: bool) -> str | None:
    """Why a skip for that reason is not permitted; None where it is."""
    for skip in PERMITTED:
        if skip.reason == reason:
            return f"{REQUIRE_REAL} is set" if skip.required and require_real else None
    return "no such skip is permitted; see tests/conformance/skips.py"
