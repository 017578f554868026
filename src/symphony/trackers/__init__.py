"""Issue trackers: one read contract, two optional capabilities, one adapter per tracker."""
