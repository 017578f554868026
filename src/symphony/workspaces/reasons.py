"""Finds out why git failed, from the output of git and its helpers, and what to do about it.

The last line of git's output is often not the cause: ssh, credential helpers, Git LFS and proxies print
theirs before git. This module recognises their lines, and uses them if git's line names no cause.
"""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct


class GitReason(Struct, frozen=True):
    """A cause: its name, a case-insensitive pattern of its line, and the remedy in one line."""

    name: str
    pattern: str
    hint: str

    def is_in(self, text: str) -> bool:
        """Whether a text names this cause."""
        return re.search(self.pattern, text, re.IGNORECASE) is not None


_SSH: Final = "see `ssh -T` to that host as the user of the daemon"

REASONS: Final[Sequence[GitReason]] = (
    # ssh
    GitReason(
        "host_key",
        r"host key verification failed|remote host identification has changed|no .+ host key is known",
        "compare the host's key and add it as the user of the daemon: "
        "`ssh-keyscan HOST >>~/.ssh/known_hosts`; `ssh-keygen -R HOST` removes an old one",
    ),
    GitReason(
        "ssh_key",
        r"permission denied \((publickey|password|keyboard|gssapi|hostbased)",
        f"give the daemon's user a key that the server knows, without a passphrase or in an agent: {_SSH}",
    ),
    GitReason(
        "ssh_modes",
        r"bad owner or permissions|unprotected private key|bad permissions",
        "let only the user of the daemon read and write ~/.ssh and its files: `chmod -R go= ~/.ssh`",
    ),
    # what a clone needs
    GitReason(
        "lfs_quota",
        r"over its data quota|lfs budget|lfs.*bandwidth|bandwidth limit",
        "the quota of Git LFS is used up: raise it on the server, or set lfs.fetchexclude in git's settings",
    ),
    GitReason(
        "lfs_missing",
        r"git-lfs\b.*not found|'lfs' is not a git command|cannot run git-lfs|git-lfs: no such file",
        "install git-lfs, and run `git lfs install` as the daemon's user",
    ),
    GitReason(
        "lfs",
        r"external filter '\"?git-lfs|(smudge|clean) filter lfs failed",
        "Git LFS failed: see `git lfs fetch` in a clone as the daemon's user; its server may need a login",
    ),
    GitReason(
        "filter",
        r"smudge filter .+ failed|clean filter .+ failed|external filter .+ failed",
        "a filter of git failed: install its program and its key for the user of the daemon, "
        "or see `git config --show-origin --get-regexp ^filter`",
    ),
    GitReason(
        "helper_missing",
        r"(?m)^(?!fatal|remote|!).+: (command )?not found$|cannot run |unable to fork|is not a git command",
        "install the program that git calls, or correct core.sshCommand or credential.helper: "
        "the daemon may have another PATH than a shell",
    ),
    # the source
    GitReason(
        "shallow",
        r"shallow (roots|update)|because shallow",
        "the repository is shallow: run `git fetch --unshallow` in it",
    ),
    GitReason(
        "partial",
        r"promisor|lazy fetching disabled|bad (tree|blob) object|missing (blob|tree|commit|object)s?\b"
        r"|could not fetch [0-9a-f]{40}",
        "the repository lacks objects, as a partial clone does: in it, run "
        "`git config --unset-all remote.origin.partialclonefilter; git fetch --refetch`",
    ),
    GitReason(
        "damaged",
        r"object file .+ is empty|loose object .+ is corrupt|packfile .+ cannot be accessed"
        r"|bad object|unable to read (tree|[0-9a-f]{40})|repository corruption|garbage at end|inflate:",
        "the repository is damaged: `git fsck --full` in it names what is missing; fetch that from a clone",
    ),
    GitReason(
        "malformed",
        r"fsck error|object [0-9a-f]{40,64}: \w+: |badtimezone|zeropaddedfilemode|missingspacebefore",
        "an object of the history is malformed: `git fsck` names it; repair it, or let the server accept it "
        "(`git config receive.fsck.NAME ignore` or `fetch.fsck.NAME ignore`)",
    ),
    GitReason(
        "format",
        r"unknown repository extension|expected git repo version|unsupported ref storage|unknown ref storage",
        "the repository has a newer format than this git knows: upgrade git for the user of the daemon",
    ),
    GitReason(
        "protocol",
        r"transport '\w+' not allowed",
        "a setting of git forbids this kind of address: `git config --show-origin --get-regexp ^protocol`; "
        "`git config --global protocol.file.allow always` allows paths, such as those of submodules",
    ),
    # what a server does not accept
    GitReason(
        "archived",
        r"(is|was|been) archived|repository is read.only",
        "the repository is archived or read-only: unarchive it there, or set workspace.push: never",
    ),
    GitReason(
        "single_sign_on",
        r"saml sso|enabled or enforced saml|single sign-on",
        "authorise the key or token for the organisation's single sign-on, on the page of the server",
    ),
    GitReason(
        "workflow_scope",
        r"without `?workflow`? scope|refusing to allow an? .+ to create or update workflow",
        "the branch changes workflows of CI: give the token the scope `workflow`",
    ),
    GitReason(
        "too_large",
        r"gh001|file size limit|large files detected|exceeds .*(size|limit)|pack exceeds maximum",
        "a file is larger than the server takes: remove it from the branch, or keep it in Git LFS",
    ),
    GitReason(
        "email_privacy",
        r"gh007|email privacy|would publish a private email",
        "use the address that the server gives for commits: `git config user.email ADDRESS`",
    ),
    GitReason(
        "rule",
        r"gh006|gh013|protected branch|rule violations|pre-receive hook declined|push declined|hook declined",
        "a rule of the server refuses the branch: allow branches symphony/* there, or let this user pass it",
    ),
    GitReason(
        "push_options",
        r"does not support push options",
        "remove push.pushOption from git's settings: the server knows no push options",
    ),
    GitReason(
        "checked_out",
        r"refusing to update checked out branch|branch is currently checked out",
        "the branch is checked out there: switch to another one, or let origin be a bare repository",
    ),
    # login
    GitReason(
        "login",
        r"could not read (username|password)|terminal prompts disabled|authentication failed"
        r"|invalid username or (password|token)|password authentication was removed|http basic: access denied"
        r"|returned error: 401",
        "give git a login for the user of the daemon: a credential helper that needs no terminal, "
        "or a login in workspace.repo",
    ),
    GitReason(
        "forbidden",
        r"returned error: 403|permission to .+ denied|not allowed to (push|upload)"
        r"|write access .*not granted",
        "this login may not do that there: give it access, or use another one",
    ),
    GitReason(
        "not_found",
        r"repository not found|repository '.+' not found|project you were looking for could not be found"
        r"|does not appear to be a git repository|repository .+ does not exist|returned error: 404",
        "correct workspace.repo or the remote; servers also say this to a login that may not see it",
    ),
    # network
    GitReason(
        "proxy",
        r"from proxy|proxy connect|resolve proxy|proxy authentication|to proxy|proxycommand|error: 407",
        "check http.proxy, the variables *_proxy and ProxyCommand of ssh, and the login of the proxy",
    ),
    GitReason(
        "dns",
        r"could not resolve host|name or service not known|temporary failure in name resolution",
        "the name of the host is not known here: check workspace.repo and DNS",
    ),
    GitReason(
        "certificate",
        r"ssl certificate|server certificate|certificate verif|self.signed",
        "this machine does not trust the server's certificate: set http.sslCAInfo to the file of its issuer",
    ),
    GitReason(
        "throttled",
        r"error: 429|rate limit|too many requests",
        "the server asks for a pause: fewer daemons, or a longer polling.interval_ms",
    ),
    GitReason(
        "network",
        r"connection (refused|timed out|reset|closed)|operation timed out|network is unreachable"
        r"|no route to host|failed to connect|couldn't connect|rpc failed|did not end in time|early eof",
        "check the network between this machine and the server, a firewall, and whether the server works",
    ),
    # this machine
    GitReason(
        "open_files",
        r"too many open files",
        "raise the limit of open files: `ulimit -n 4096`, or LimitNOFILE of the unit",
    ),
    GitReason(
        "memory",
        r"cannot allocate memory|out of memory|unable to create thread",
        "git has too little memory here: let fewer agents work at once, or set pack.threads to 1",
    ),
    GitReason(
        "permissions",
        r"insufficient permission for adding an object|: permission denied",
        "let the user of the daemon read and write the named file: another user may have made it",
    ),
    GitReason(
        "read_only",
        r"read-only file system",
        "the disk is mounted read-only: remount it, or move workspace.root",
    ),
    GitReason(
        "long_name",
        r"file ?name too long",
        "a path in the repository is too long for this disk: move workspace.root up",
    ),
    GitReason(
        "lock",
        r"\.lock': file exists|cannot lock ref(?!.+unable to create directory)|unable to create '.+\.lock'",
        "another git works there, or one was killed: end it, or delete the file .lock that the message names",
    ),
)
"""All known causes; the first one that matches gives the hint."""

_NO_CAUSE: Final = re.compile(
    r"could not read (from remote repository|username|password)|remote end hung up|unexpected disconnect"
    r"|early eof|index-pack|pack-objects died|protocol error|expected flush|external filter|smudge filter"
    r"|authentication failed|unable to fork|ref updates aborted|failed to push some refs|bad pack header"
    r"|packet write|client identification|for subprocess",
    re.IGNORECASE,
)
"""Lines of git that follow from another line."""

_NOISE: Final = re.compile(
    r"hint:|please make sure you have|and the repository exists|from |to |cloning into|downloading |\*|@@@"
    r"|errors logged to|use `git lfs logs|warning: permanently added|receiving |resolving |remote:\s*$|$",
    re.IGNORECASE,
)
_MAX_OTHERS: Final = 3


def reason_for(text: str) -> GitReason | None:
    """The first cause in the table that a text names."""
    return next((reason for reason in REASONS if reason.is_in(text)), None)


def telling_lines(text: str) -> list[str]:
    """The lines of git's error output that say why it failed, the most informative ones first.

    If git itself names no cause, the last lines of its helpers belong to it.
    """
    lines = [line.strip() for line in text.splitlines() if not _NOISE.match(line.strip())]
    own = [line for line in lines if line.startswith(("fatal:", "error:", "!"))]
    remote = [line for line in lines if line.startswith("remote:")]
    others = [line for line in lines if line not in own and line not in remote]
    causes = [line for line in others if reason_for(line) is not None]
    if own and not all(_NO_CAUSE.search(line) or line.endswith(":") for line in own):
        others = []
    return list(dict.fromkeys([*(causes or others)[-_MAX_OTHERS:], *own, *remote]))
