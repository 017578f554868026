"""The contract of trackers that are asked over HTTP, run against every adapter.

The cases are in `tests/unit/trackers/contract`; each runs against a `Desk`: an adapter, wired to a server of
its service that lives in memory (`Vendor`), with a clock that stands still. What the service cannot say is
left out of its desk (`can`), and the cases that need it are passed over there.

How to add an adapter
---------------------
In the package, one folder `trackers/<kind>/`, as `trackers/linear` and `trackers/github` have it:

- `config.py`: `read_config(settings, environment)` reads the keys with `ProviderReader`, so that every
  mistake
  is told with its key; the result has `active`, `terminal` and `access` (base address, credential, headers).
- `dialect.py`: one `Dialect`: names of limits, how the service says no, which settings to point at.
- `wire.py`: pure functions from its JSON to `Issue`, with `trackers.reading`.
- `flows.py`: a class with the methods of `remote.Flows`; each is a generator that yields `Request`s and is
  sent `Answer`s. Pages go through a `Trail`. No clock, no network, no retry, no limit: `trackers.http` does
  that. What is unknown to the service is null; blockers cost no request where there are none.
- `__init__.py`: `KIND = RemoteKind(...)`; in `pyproject.toml` one entry point of `symphony.trackers`, and one
  line in the contract "Trackers do not know each other".

Beside it: `docs/trackers/<kind>.md` with the headings of the others (a test reads them), the kind in
`docs/trackers/README.md`, `docs/workflow-file.md` and `CHANGELOG.md`.

Here, one module `contract/<kind>.py` with

- a `Vendor`: `handle(asked)` answers as the service does, from what was seeded. Only the parts that the
  adapter
  uses. `check(asked, given)` holds both against the vendor's schema where `SYMPHONY_VENDOR_SCHEMAS` names the
  folder, and raises `AssertionError`; without a schema a hand-written shape must do, and the docs say so.
  `fault` and `throttles` are the service's own ways to fail.
- a `Desk`: seeds the vendor in the words of the suite.

and one line in `contract/desks.py`. Nothing else is to be written for the cases to run.
"""
