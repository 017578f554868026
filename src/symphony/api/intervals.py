"""Confidence intervals of 95 % for shares and for the difference of two shares.

Wilson's score interval: E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
Journal of the American Statistical Association 22 (1927). The difference: method 10 of R. G. Newcombe,
"Interval estimation for the difference between independent proportions", Statistics in Medicine 17 (1998).
Both keep to their bounds and hold for small numbers.
"""

from math import sqrt
from typing import Final

_Z: Final = 1.959963984540054  # the 97.5 % quantile of the normal distribution


def wilson(successes: int, number: int) -> tuple[float, float]:
    """The interval of a share; 0 to 1 without observations."""
    if number == 0:
        return 0.0, 1.0
    share, spread = successes / number, _Z * _Z / number
    centre = share + spread / 2
    half = _Z * sqrt(share * (1 - share) / number + spread / (4 * number))
    low, high = (centre - half) / (1 + spread), (centre + half) / (1 + spread)
    return (0.0 if successes == 0 else low), (1.0 if successes == number else high)


def difference(successes: int, number: int, other_successes: int, other_number: int) -> tuple[float, float]:
    """The interval of the first share minus the other one; both have observations."""
    share, other = successes / number, other_successes / other_number
    (low, high), (other_low, other_high) = wilson(successes, number), wilson(other_successes, other_number)
    distance = share - other
    return (
        distance - sqrt((share - low) ** 2 + (other_high - other) ** 2),
        distance + sqrt((high - share) ** 2 + (other - other_low) ** 2),
    )
