"""How every surface writes a moment; apart from the documents, because readers of them need nothing else."""

from datetime import UTC, datetime

__all__ = ["utc_text"]


def utc_text(moment: datetime) -> str:
    """The moment as the API shows it: UTC, ISO-8601, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
