"""Issue trackers: one read contract, optional capabilities, one adapter per tracker."""
