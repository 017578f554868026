"""Workspaces: one directory per issue, created, populated from git, checked, delivered and removed."""

from symphony.workspaces.delivery import BranchLocation, delivery_failure, locate_branch, mirror_path
from symphony.workspaces.directories import check_path, discard, is_launchable, open_root
from symphony.workspaces.export import WorkspacePreview
from symphony.workspaces.files import delete_old_entries, delete_tree, is_directory
from symphony.workspaces.git import (
    NETWORK_TIMEOUT_MS,
    Git,
    GitError,
    all_refs,
    branch_of_head,
    common_dir,
    config_value,
    is_sha256,
    packed_refs,
    read_ref,
    without_credentials,
)
from symphony.workspaces.layout import Layout, check_key, key_of, resolve, resolve_contained
from symphony.workspaces.locks import RootLease
from symphony.workspaces.manager import SUBMODULES_HINT, WorkspaceManager
from symphony.workspaces.mirror import Mirror, RemoteRefs, parse_ls_remote
from symphony.workspaces.model import (
    NUMSTAT,
    Changes,
    Delivery,
    FileChange,
    Login,
    Patch,
    ProgressMark,
    Removal,
    Workspace,
    WorkspaceError,
    WorkspaceRecord,
    local_repository,
    parse_numstat,
    split_login,
    vanished_failure,
)
from symphony.workspaces.ownership import BRANCH_CLAIMS, StoredRecord, read_record, write_record
from symphony.workspaces.remote import BranchBase, Courier, RemoteSource
from symphony.workspaces.removal import reason_to_keep
from symphony.workspaces.shadow import changed_files, copy_lfs_objects, hash_watched_files

__all__ = [
    "BRANCH_CLAIMS",
    "NETWORK_TIMEOUT_MS",
    "NUMSTAT",
    "SUBMODULES_HINT",
    "BranchBase",
    "BranchLocation",
    "Changes",
    "Courier",
    "Delivery",
    "FileChange",
    "Git",
    "GitError",
    "Layout",
    "Login",
    "Mirror",
    "Patch",
    "ProgressMark",
    "RemoteRefs",
    "RemoteSource",
    "Removal",
    "RootLease",
    "StoredRecord",
    "Workspace",
    "WorkspaceError",
    "WorkspaceManager",
    "WorkspacePreview",
    "WorkspaceRecord",
    "all_refs",
    "branch_of_head",
    "changed_files",
    "check_key",
    "check_path",
    "common_dir",
    "config_value",
    "copy_lfs_objects",
    "delete_old_entries",
    "delete_tree",
    "delivery_failure",
    "discard",
    "hash_watched_files",
    "is_directory",
    "is_launchable",
    "is_sha256",
    "key_of",
    "local_repository",
    "locate_branch",
    "mirror_path",
    "open_root",
    "packed_refs",
    "parse_ls_remote",
    "parse_numstat",
    "read_record",
    "read_ref",
    "reason_to_keep",
    "resolve",
    "resolve_contained",
    "split_login",
    "vanished_failure",
    "without_credentials",
    "write_record",
]
