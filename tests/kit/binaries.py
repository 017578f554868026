"""Find the binary of an agent that came as an npm package."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NpmProgram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NpmProgram:
    """A program whose npm package holds a Node program and, in a package for the platform, a native binary.

    `variable` names the binary and comes first; `package` is `scope/name`; `native` is a pattern below
    that scope.
    """

    name: str
    variable: str
    package: str
    native: str

    def find(self, environ: Mapping[str, str]) -> Path | None:
        """The binary that `variable` names, else the one on `PATH`; null where there is none.

        npm puts the Node program on `PATH`; the native binary beside it is preferred, because signals and
        process ids then are those of the agent itself.
        """
        named = environ.get(self.variable)
        if named:
            return Path(named) if os.access(named, os.X_OK) else None
        found = shutil.which(self.name, path=environ.get("PATH", os.defpath))
        return None if found is None else self._beside(Path(found).resolve())

    def _beside(self, program: Path) -> Path:
        """The native binary of the package to which `program` belongs, else `program` itself."""
        owner = self.package.partition("/")[0]
        for scope in program.parents:
            if scope.name == owner:
                nested = scope.parent / self.package / "node_modules" / owner
                binaries = [*sorted(nested.glob(self.native)), *sorted(scope.glob(self.native))]
                return binaries[0] if binaries else program
        return program
