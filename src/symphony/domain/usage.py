"""What agents use: tokens by kind, their cost, and the prices of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated, Final, Self

from msgspec import Meta, Struct, structs
from typing_extensions import override

from symphony.domain.text import add_counts, clamp_count

Count = Annotated[int, Meta(ge=0)]


class Tokens(Struct, frozen=True):
    """Absolute counts.

    The input includes what was read from and written to a cache, the output includes reasoning. A kind is 0
    if the agent does not report it.
    """

    input_tokens: Count = 0
    output_tokens: Count = 0
    total_tokens: Count = 0
    cache_read_tokens: Annotated[
        Count, Meta(description="The part of the input that was read from a cache.")
    ] = 0
    cache_write_tokens: Annotated[
        Count, Meta(description="The part of the input that was written to a cache.")
    ] = 0
    reasoning_tokens: Annotated[Count, Meta(description="The part of the output that was reasoning.")] = 0

    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return structs.asdict(self)

    def plus(self, other: "Tokens") -> "Tokens":
        """The sum of both; each count is at most `MAX_COUNT`."""
        return Tokens(*map(add_counts, structs.astuple(self), structs.astuple(other)))

    def above(self, mark: "Tokens") -> "Tokens":
        """By how much each count exceeds the mark; 0 if it does not."""
        pairs = zip(structs.astuple(self), structs.astuple(mark), strict=True)
        return Tokens(*(max(0, count - before) for count, before in pairs))


NO_TOKENS: Final = Tokens()


class Cost(Struct, frozen=True, kw_only=True):
    """The cost of tokens, and how many tokens have no known price.

    `cost_usd` is `None` if no cost is known; it is 0 only if the price is 0.
    """

    cost_usd: Annotated[
        float | None,
        Meta(description="As the agent reported it, else by the prices of WORKFLOW.md; null if unknown."),
    ] = None
    unpriced_tokens: Annotated[
        int, Meta(description="Tokens that `cost_usd` leaves out, because no price is known.")
    ] = 0

    def above(self, mark: "Cost") -> "Cost":
        """By how much it exceeds an earlier cost; negative if an estimate was too high."""
        usd = None if self.cost_usd is None else self.cost_usd - (mark.cost_usd or 0)
        return Cost(cost_usd=usd, unpriced_tokens=self.unpriced_tokens - mark.unpriced_tokens)

    def plus(self, other: Self) -> Self:
        """The sum of both, not below 0."""
        known = [usd for usd in (self.cost_usd, other.cost_usd) if usd is not None]
        return structs.replace(
            self,
            cost_usd=max(sum(known), 0.0) if known else None,
            unpriced_tokens=clamp_count(self.unpriced_tokens + other.unpriced_tokens),
        )

    def rounded(self) -> Self:
        """The cost rounded for display, to a millionth of a dollar."""
        return self if self.cost_usd is None else structs.replace(self, cost_usd=round(self.cost_usd, 6))


NO_COST: Final = Cost()


class Usage(Cost, frozen=True, kw_only=True):
    """Tokens and their cost."""

    tokens: Tokens = NO_TOKENS

    @override
    def plus(self, other: Self) -> Self:
        """The sum of both."""
        return structs.replace(super().plus(other), tokens=self.tokens.plus(other.tokens))


NO_USAGE: Final = Usage()


class Spent(Struct, frozen=True, kw_only=True):
    """What an issue has used of its budget since its first start, or since it was last unblocked."""

    tokens: Count = 0
    turns: Count = 0


class BudgetLimits(Struct, frozen=True, kw_only=True):
    """What issues may use (`agent.budget`); `None` for no limit."""

    max_tokens_per_day: Annotated[Count | None, Meta(description="agent.budget.max_tokens_per_day")]
    max_tokens_per_issue: Annotated[Count | None, Meta(description="agent.budget.max_tokens_per_issue")]
    max_turns_per_issue: Annotated[Count | None, Meta(description="agent.budget.max_turns_per_issue")]
    max_turns_without_progress: Annotated[
        Count | None, Meta(description="agent.budget.max_turns_without_progress")
    ]
    max_attempts_without_progress: Annotated[
        Count, Meta(description="agent.budget.max_attempts_without_progress")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model in US dollars per million tokens.

    Attributes:
        since: the first day on which it holds (`YYYY-MM-DD`, UTC); `None` for always.
        cache_read: `None` for that of `input`, likewise `cache_write`.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    since: str | None = None


def find_price(prices: Mapping[str, Sequence[Price]], model: str | None, day: str) -> Price | None:
    """The price of a model on a day (`YYYY-MM-DD`, UTC), or `None`.

    The prices stand under an exact name, or under the beginning of names with `*` after it. An exact name
    wins over a prefix, and a longer prefix over a shorter one; then the latest day wins.
    """
    found = [
        ((name == model, len(name), price.since or ""), price)
        for name, dated in prices.items()
        for price in dated
        if model and (name == model or (name.endswith("*") and model.startswith(name[:-1])))
        if price.since is None or price.since <= day
    ]
    return max(found, key=itemgetter(0))[1] if found else None


def cost_of(tokens: Tokens, price: Price | None) -> Cost:
    """The cost of tokens at a price. Tokens that are neither input nor output cost nothing."""
    priced = tokens.input_tokens + tokens.output_tokens
    total = max(tokens.total_tokens, priced)
    if price is None or not priced:
        return Cost(unpriced_tokens=total)
    read = price.input if price.cache_read is None else price.cache_read
    written = price.input if price.cache_write is None else price.cache_write
    fresh = max(tokens.input_tokens - tokens.cache_read_tokens - tokens.cache_write_tokens, 0)
    millionths = (
        fresh * price.input
        + tokens.cache_read_tokens * read
        + tokens.cache_write_tokens * written
        + tokens.output_tokens * price.output
    )
    return Cost(cost_usd=millionths / 1_000_000, unpriced_tokens=total - priced)
