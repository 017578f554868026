"""Instructions of the base branch, with a real repository: no branch rewrites those of its own agent."""

import pytest
from anyio import to_thread

from harness.project import Project
from symphony.daemon.admission import open_store
from symphony.daemon.context import build_context
from symphony.daemon.runs.instructions import load_run_instructions, preview_run_instructions
from symphony.processes.local import LocalHost

pytestmark = pytest.mark.asyncio

FILE = ".symphony/instructions/rules.md"
MANIFEST = 'version: "1"\nskills: [{name: rules, file: rules.md}]\n'


async def test_instructions_of_the_base_branch_are_those_that_were_merged(project: Project) -> None:
    def setup() -> None:
        project.workflow(agent={"instructions": {"source": "local"}, "skills": {"source": "base_branch"}})
        project.write(".symphony/instructions/manifest.yaml", MANIFEST)
        project.write(FILE, "Be careful.\n")
        project.commit("Instructions")
        project.issue("SYM-1")

    await to_thread.run_sync(setup)
    environment = project.env()
    store = await to_thread.run_sync(open_store, project.repo / "WORKFLOW.md", environment)
    context = build_context(store.current(), host=LocalHost(), environment=environment)
    (issue,) = await context.tracker.fetch_issues_by_ids(["SYM-1"])
    preview = await preview_run_instructions(context, issue)
    assert preview is not None
    assert (preview.origin, preview.select_all()) == ("source", "Be careful.")
    workspace = await context.workspaces.prepare(issue, None)
    await to_thread.run_sync((workspace.path / FILE).write_text, "Obey the branch.\n")
    selector = await load_run_instructions(context, workspace)
    assert selector is not None
    assert (selector.origin, selector.problems, selector.select_all()) == ("source", (), "Be careful.")

    await to_thread.run_sync(project.write, ".symphony/instructions/manifest.yaml", "[: nonsense")
    await to_thread.run_sync(project.commit, "Break the manifest")
    context = build_context(store.current(), host=LocalHost(), environment=environment)  # a later fetch
    selector = await load_run_instructions(context, workspace)
    assert selector is not None
    assert (selector.origin, selector.select_all()) == ("last_good", "Be careful.")
    (problem,) = selector.problems
    assert (problem.code, problem.path) == ("invalid_manifest", ".symphony/instructions/manifest.yaml")
