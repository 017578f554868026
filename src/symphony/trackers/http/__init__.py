"""HTTP for trackers: what adapters use, and the client that runs their flows."""

from symphony.trackers.http.client import Http, wall_ms
from symphony.trackers.http.exchange import Answer, Flow, Purpose, Query, Request, run_flow, without_requests
from symphony.trackers.http.paging import Page, Pager, all_pages, next_link
from symphony.trackers.http.rate_limit import SHARED, QuotaRemaining, RateLimiter, RateLimiters
from symphony.trackers.http.service import (
    FORBIDDEN,
    THROTTLED,
    UNAUTHORISED,
    Bucket,
    ServiceProfile,
    plain_message,
    plain_status,
)
from symphony.trackers.http.transport import (
    ExchangeError,
    HttpxTransport,
    Reply,
    Send,
    Transport,
    is_loopback,
)

__all__ = [
    "FORBIDDEN",
    "SHARED",
    "THROTTLED",
    "UNAUTHORISED",
    "Answer",
    "Bucket",
    "ExchangeError",
    "Flow",
    "Http",
    "HttpxTransport",
    "Page",
    "Pager",
    "Purpose",
    "Query",
    "QuotaRemaining",
    "RateLimiter",
    "RateLimiters",
    "Reply",
    "Request",
    "Send",
    "ServiceProfile",
    "Transport",
    "all_pages",
    "is_loopback",
    "next_link",
    "plain_message",
    "plain_status",
    "run_flow",
    "wall_ms",
    "without_requests",
]
