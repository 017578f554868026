"""The daemon around the pure scheduler: carries out its commands and feeds events back."""
