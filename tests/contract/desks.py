"""Every adapter that is asked over HTTP; a new one adds its line."""

from collections.abc import Mapping

from contract.desk import Desk
from contract.linear import LinearDesk

DESKS: Mapping[str, type[Desk]] = {
    "linear": LinearDesk,
}
