"""What agents use: tokens by kind, what they cost, and the prices of models."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from symphony.domain.text import add_counts, clamp_count


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts.

    The input includes what was read from and written to a cache, the output includes reasoning. The kinds are
    0 where an agent does not report them.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @classmethod
    def of(cls, counts: object) -> "Tokens":
        """The counts of a value that has all of them among its fields."""
        return cls(*(getattr(counts, name) for name in _NAMES))

    def counts(self) -> dict[str, Any]:
        """The counts by name, for a value that has them among its fields."""
        return {name: getattr(self, name) for name in _NAMES}

    def plus(self, other: "Tokens") -> "Tokens":
        """The sum of both, each count at most `MAX_COUNT`."""
        return Tokens(*(add_counts(getattr(self, name), getattr(other, name)) for name in _NAMES))

    def above(self, mark: "Tokens") -> "Tokens":
        """How much each count exceeds the mark; 0 where it does not."""
        return Tokens(*(max(0, getattr(self, name) - getattr(mark, name)) for name in _NAMES))


_NAMES: Final = tuple(field.name for field in fields(Tokens))
NO_TOKENS: Final = Tokens()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What tokens cost, and how many tokens have no known price.

    `usd` is `None` if nothing is known to cost anything; it is 0 only where that is the price.
    """

    usd: float | None = None
    unpriced_tokens: int = 0

    @classmethod
    def of(cls, value: Any) -> "Cost":
        """The fields `cost_usd` and `unpriced_tokens` of another value."""
        return cls(usd=value.cost_usd, unpriced_tokens=value.unpriced_tokens)

    def above(self, mark: "Cost") -> "Cost":
        """By how much it exceeds an earlier cost; below 0 where an estimate was too high."""
        usd = None if self.usd is None else self.usd - (mark.usd or 0)
        return Cost(usd=usd, unpriced_tokens=self.unpriced_tokens - mark.unpriced_tokens)

    def plus(self, other: "Cost") -> "Cost":
        """The sum of both, not below 0."""
        known = [usd for usd in (self.usd, other.usd) if usd is not None]
        return Cost(
            usd=max(sum(known), 0.0) if known else None,
            unpriced_tokens=clamp_count(self.unpriced_tokens + other.unpriced_tokens),
        )


NO_COST: Final = Cost()


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model in US dollars per million tokens.

    Attributes:
        model: its exact name, or the beginning of names with `*` after it.
        since: the first day on which it holds (`YYYY-MM-DD`, UTC); empty for always.
        cache_read: `None` for that of `input`, likewise `cache_write`.
    """

    model: str
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    since: str = ""

    def fits(self, model: str) -> bool:
        """Whether it is a price of this model."""
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return model == self.model


def find_price(prices: Sequence[Price], model: str | None, day: str) -> Price | None:
    """The price of a model on a day (`YYYY-MM-DD`, UTC), or `None`.

    An exact name goes before a beginning, a longer beginning before a shorter one, and then the latest day.
    """
    found = [price for price in prices if model and price.fits(model) and price.since <= day]
    return max(found, key=lambda price: (price.model == model, len(price.model), price.since), default=None)


def cost_of(tokens: Tokens, price: Price | None) -> Cost:
    """What tokens cost at a price. Tokens that are neither input nor output have none."""
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
    return Cost(usd=millionths / 1_000_000, unpriced_tokens=total - priced)
