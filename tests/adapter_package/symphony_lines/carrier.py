"""Machines that are folders of this one: each is the home of its commands, which a shell runs."""

import sys
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from symphony.config import CarrierSettings, WorkerSettings, live
from symphony.daemon.carriers import Carrier, RemoteHost

SHELL = 'for last; do :; done; cd "$HOME" && eval "$last"'
"""Runs the last of its words; git puts options before it."""


class FolderSettings(CarrierSettings):
    """The section `worker.folder` of WORKFLOW.md: two keys, besides those that every carrier has."""

    folders: Annotated[tuple[str, ...], Field(strict=False)] = live((), "the absolute paths of the folders")
    python: str = live(sys.executable, "the Python that has this release")


class FolderCarrier(Carrier[FolderSettings]):
    settings_type = FolderSettings
    inherits = "PYTHONPATH"

    @classmethod
    @override
    def names_in(cls, worker: WorkerSettings, settings: FolderSettings) -> tuple[str, ...]:
        return settings.folders

    @override
    def host(self, name: str) -> RemoteHost:
        return RemoteHost(
            name=name,
            client=("sh", "-c", SHELL, "sh"),
            address="here",
            remote_root=self.settings.remote_root,
            remote_python=self.settings.python,
            install_hint="name one that has this release in worker.folder.python",
            local=self.context.local,
            env={**self.env, "HOME": name},
        )
