"""What a person should know about an agent's settings before anything runs: the shape of one remark."""

from dataclasses import dataclass

__all__ = ["Remark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One remark on one key: a phrase that follows the key's name, and what to do about it."""

    key: str
    problem: str
    hint: str
