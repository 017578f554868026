"""What tests of workspaces share."""

from symphony.domain import DeliveredBranch
from symphony.workspaces import Delivery


def delivered_branch(delivery: Delivery) -> DeliveredBranch:
    """What was delivered; the test fails if nothing was."""
    assert delivery.delivered is not None
    return delivery.delivered
