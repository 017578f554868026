"""The phase of the work on an issue, judged at the start of every turn."""

from symphony.domain import Issue, Phase
from symphony.scheduler.messages import SchedulerSettings


def phase_of(issue: Issue, settings: SchedulerSettings) -> Phase | None:
    """The phase by the first of `agent.phases.rules` that matches, else the default, if there is one."""
    for index, rule in enumerate(settings.phase_rules):
        if rule.matches(issue):
            return Phase(name=rule.phase, reason=f"the {rule.condition} (agent.phases.rules[{index}])")
    if settings.phase is None:
        return None
    return Phase(name=settings.phase, reason="the default (agent.phases.default)")
