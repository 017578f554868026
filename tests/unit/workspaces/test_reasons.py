"""What git and its helpers printed in the field: which lines are kept, and which cause is recognised."""

import pytest

from symphony.workspaces.reasons import REASONS, reason_for, telling_lines

PRINTED = """\
## ssh_key: Permission denied (publickey)
git@github.com: Permission denied (publickey).
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## ssh_key: a@h: Permission denied
a@h: Permission denied (publickey,password).
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## host_key: Host key verification failed.
Host key verification failed.
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## host_key: Host key verification failed.
@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
The fingerprint is
SHA256:abc.
Please contact your system administrator.
Host key verification failed.
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## ssh_modes: Bad owner
Bad owner or permissions on /home/x/.ssh/config
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## not_found: ERROR: Repository not found.
ERROR: Repository not found.
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## network: Connection refused
ssh: connect to host h port 22: Connection refused
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## dns: Could not resolve hostname
ssh: Could not resolve hostname h: Name or service not known
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## helper_missing: cannot run /opt/ssh
error: cannot run /opt/ssh: No such file or directory
fatal: unable to fork
## helper_missing: nc: not found
sh: 1: exec: nc: not found
Connection closed by UNKNOWN port 65535
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## helper_missing: credential-foo
git: 'credential-foo' is not a git command. See 'git --help'.
fatal: could not read Username for 'https://h': terminal prompts disabled
## helper_missing: gh: not found
gh auth git-credential get: 1: gh: not found
fatal: could not read Username for 'https://h': terminal prompts disabled
## login: terminal prompts
fatal: could not read Username for 'https://h': terminal prompts disabled
## login: Invalid username or token
remote: Invalid username or token. Password authentication is not supported for Git operations.
fatal: Authentication failed for 'https://h/x/'
## forbidden: denied to bob
remote: Permission to a/b.git denied to bob.
fatal: unable to access 'https://h/': The requested URL returned error: 403
## not_found: Repository not found
remote: Repository not found.
fatal: repository 'https://h/proxy.git/' not found
## proxy: 407
fatal: unable to access 'https://h/': Received HTTP code 407 from proxy after CONNECT
## dns: Could not resolve host
fatal: unable to access 'https://h/proxy/': Could not resolve host: h
## certificate: SSL certificate problem
fatal: unable to access 'https://h/': SSL certificate problem: unable to get local issuer certificate
## throttled: 429
fatal: unable to access 'https://h/': The requested URL returned error: 429
## lfs_missing: git-lfs: not found
git-lfs filter-process: 1: git-lfs: not found
fatal: the remote end hung up unexpectedly
## lfs_missing: git-lfs: command not found
git-lfs smudge -- 'a.bin': line 1: git-lfs: command not found
error: external filter 'git-lfs smudge -- %f' failed 127
fatal: a.bin: smudge filter lfs failed
## lfs_missing: git-lfs: not found
git-lfs filter-process: 1: git-lfs: not found
error: packet write with format failed
error: Could not write client identification
error: initialization for subprocess 'git-lfs filter-process' failed
fatal: a.bin: smudge filter lfs failed
## partial: bad tree object
error: git upload-pack: git-pack-objects died with error.
fatal: protocol error: bad pack header
remote: fatal: bad tree object 0123456789abcdef0123456789abcdef01234567
remote: aborting due to possible repository corruption on the remote side.
## lfs_quota: data quota
Downloading a.bin (5 B)
Error downloading object: a.bin (2cf24db): batch response: This repository is over its data quota.
Errors logged to '/x/lfs/logs/1.log'.
Use `git lfs logs last` to view the log.
error: external filter 'git-lfs filter-process' failed
fatal: a.bin: smudge filter lfs failed
## filter: smudge filter crypt
error: external filter 'crypt -d' failed 1
fatal: a: smudge filter crypt failed
## shallow: shallow
warning: rejected refs/x because shallow roots are not allowed to be updated
## partial: promisor remote
remote: warning: lazy fetching disabled; some objects may not be available
remote: fatal: could not fetch 0123456789abcdef0123456789abcdef01234567 from promisor remote
error: git upload-pack: git-pack-objects died with error.
remote: aborting due to possible repository corruption on the remote side.
fatal: protocol error: bad pack header
## damaged: is empty
error: object file .git/objects/aa/bb is empty
fatal: loose object aabb is corrupt
## malformed: duplicateEntries
error: object 0123456789abcdef0123456789abcdef01234567: duplicateEntries: contains duplicate file entries
fatal: fsck error in packed object
fatal: fetch-pack: invalid index-pack output
## format: refstorage
fatal: unknown repository extension found:
	refstorage
## protocol: transport 'file'
fatal: transport 'file' not allowed
## archived: archived
ERROR: This repository was archived so it is read-only.
fatal: Could not read from remote repository.
Please make sure you have the correct access rights
and the repository exists.
## single_sign_on: SAML
remote: The `o' organization has enabled or enforced SAML SSO.
fatal: unable to access 'https://h/': The requested URL returned error: 403
## workflow_scope: workflow
! [remote rejected] b -> b (refusing to allow an OAuth App to create or update workflow `a.yml`)
error: failed to push some refs to 'https://h/'
## too_large: GH001
remote: error: GH001: Large files detected.
! [remote rejected] b -> b (pre-receive hook declined)
## email_privacy: GH007
remote: error: GH007: Your push would publish a private email address.
! [remote rejected] b -> b (push declined due to email privacy restrictions)
## rule: GH013
remote: error: GH013: Repository rule violations found for refs/heads/b.
! [remote rejected] b -> b (push declined)
## push_options: push options
fatal: the receiving end does not support push options
## open_files: Too many open files
fatal: cannot open directory: Too many open files
## memory: Out of memory
fatal: Out of memory, malloc failed (tried to allocate 1 bytes)
## permissions: adding an object
error: insufficient permission for adding an object to repository database objects
## read_only: Read-only
error: unable to create file a: Read-only file system
## long_name: too long
error: unable to create file a: File name too long
## lock: File exists
fatal: Unable to create '/r/.git/refs/heads/b.lock': File exists.
"""
CASES = [block.split("\n", 1) for block in PRINTED.split("## ")[1:]]


@pytest.mark.parametrize(("expected", "printed"), CASES)
def test_the_cause_is_shown_and_has_its_own_hint(expected: str, printed: str) -> None:
    name, _, kept = expected.partition(": ")
    lines = telling_lines(printed)

    assert kept in "; ".join(lines)
    reason = reason_for("\n".join(lines))
    assert reason is not None
    assert reason.name == name


def test_every_cause_has_a_name_and_one_line_of_hint() -> None:
    assert len({reason.name for reason in REASONS}) == len(REASONS)
    assert all(reason.hint and "\n" not in reason.hint for reason in REASONS)


@pytest.mark.parametrize(
    "printed",
    [
        "fatal: couldn't find remote ref refs/heads/archived\n",
        "! [rejected] b -> b (non-fast-forward)\nerror: failed to push some refs to 'https://h/'\n",
        "fatal: no way\n",
        "fatal: cannot lock ref 'refs/heads/a/b': unable to create directory for .git/refs/heads/a/b\n",
    ],
)
def test_a_line_without_a_known_cause_has_no_hint(printed: str) -> None:
    assert reason_for("\n".join(telling_lines(printed))) is None


def test_a_banner_is_not_a_cause_where_git_names_one() -> None:
    printed = "Welcome to the server.\nAll access is logged.\nfatal: couldn't find remote ref b\n"

    assert telling_lines(printed) == ["fatal: couldn't find remote ref b"]
