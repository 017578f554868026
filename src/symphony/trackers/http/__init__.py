"""One HTTP helper for every tracker that is asked over a network (TR8)."""

from symphony.trackers.http.client import Http, Traffic, wall_ms
from symphony.trackers.http.dialect import STANDARD, THROTTLED, Bucket, Dialect, plain_message, plain_status
from symphony.trackers.http.failures import limited, malformed, refused
from symphony.trackers.http.governor import SHARED, Governor, Governors, Left
from symphony.trackers.http.model import Answer, Flow, Purpose, Request, drive, drive_with, origin_of
from symphony.trackers.http.paging import Trail, next_link
from symphony.trackers.http.transport import (
    ExchangeError,
    HttpxTransport,
    Reply,
    Send,
    Transport,
    is_loopback,
)

__all__ = [
    "SHARED",
    "STANDARD",
    "THROTTLED",
    "Answer",
    "Bucket",
    "Dialect",
    "ExchangeError",
    "Flow",
    "Governor",
    "Governors",
    "Http",
    "HttpxTransport",
    "Left",
    "Purpose",
    "Reply",
    "Request",
    "Send",
    "Traffic",
    "Trail",
    "Transport",
    "drive",
    "drive_with",
    "is_loopback",
    "limited",
    "malformed",
    "next_link",
    "origin_of",
    "plain_message",
    "plain_status",
    "refused",
    "wall_ms",
]
