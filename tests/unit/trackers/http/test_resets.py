import pytest

from symphony.trackers.http.rate_limit import LONGEST_MS, server_now_s, wait_ms

NOW_S = 1_795_800_000.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("30", 30_000),
        ("0.5", 1_000),
        (str(int(NOW_S) + 90), 90_000),
        (str((int(NOW_S) + 90) * 1000), 90_000),
        ("Fri, 27 Nov 2026 17:20:30 GMT", 30_000),
        ("2026-11-27T17:20:30Z", 30_000),
        ("2026-11-27T17:20:30", 30_000),
        ("2026-11-27T18:20:30+01:00", 30_000),
        ("999999", LONGEST_MS),
        ("99999999999999999999999", None),
        ("0", None),
        ("-5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("2020-01-01T00:00:00Z", None),
        ("1500000000", None),
    ],
)
def test_every_form_of_a_reset_is_a_wait(value: str | None, expected: int | None) -> None:
    assert wait_ms(value, now_s=NOW_S) == expected


def test_the_servers_own_clock_counts() -> None:
    hours_off = NOW_S + 7_200
    now_s = server_now_s({"date": "Fri, 27 Nov 2026 17:20:00 GMT"}, hours_off)
    assert now_s == NOW_S
    assert wait_ms(str(int(NOW_S) + 60), now_s=now_s) == 60_000
    assert server_now_s({"date": "yesterday"}, 5.0) == 5.0
