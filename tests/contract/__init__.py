"""The contract of trackers over HTTP, run against every adapter.

The cases are in `tests/unit/trackers/contract`. Each runs against a `Desk`: an adapter, connected to an
in-memory server of its service (`Vendor`), with a clock that stands still. A desk lists what its service can
express (`can`); cases that need more are skipped there.

How to add an adapter
---------------------
In the package, one module `trackers/<kind>.py` with these parts, in this order; copy the one that is nearest:

- Settings: a subclass of `ProviderSettings` with the keys of `tracker.provider` and `access` (base address,
  credential, headers). Mistakes are reported with key and line by themselves. `LabelledSettings` is for
  services whose issues are only open or closed.
- Service: a `ServiceProfile`: the names of its rate limits, how it refuses, which settings hints name.
- From JSON to issues: pure functions that make an `Issue` of a record, with `trackers.fields`. What the
  service does not know is `None`.
- Flows: a subclass of `remote.Flows`; each method is a generator that yields `Request`s and receives
  `HttpResponse`s. Listings go through `pages`. No clock, network, retry or rate limit: `symphony.http` does
  that.
  Blockers cost no request where there are none.
- `KIND = RemoteKind(...)`; in `pyproject.toml` one entry point of `symphony.trackers`, and one line in the
  contract "Trackers do not know each other".

Beside it: `docs/trackers/<kind>.md` with the headings of the others (a test reads them), the kind in
`docs/trackers/README.md`, `docs/workflow-file.md` and `CHANGELOG.md`.

Here, one module `contract/<kind>.py` with

- a `Vendor`: `handle(asked)` answers as the service does, from what was seeded, as far as the adapter uses
  it. `check(asked, given)` holds both against the vendor's schema where `SYMPHONY_VENDOR_SCHEMAS` names the
  folder, and raises `AssertionError`; without a schema a hand-written shape must do, and the docs say so.
  `fault` and `throttles` are the service's own ways to fail.
- a `Desk`: seeds the vendor in the words of the suite.

and one line in `contract/desks.py`. Nothing else is needed for the cases to run.

Forges
------
GitHub, GitLab and Forgejo are one `Vendor` each for issues and for pull requests, as one server is. A
`Repository` has the pull requests, people and CI; `contract/<kind>_pulls.py` shows them as the service does.
`contract.forges.forge_desk(kind)` is the client of a forge with its service; the cases are in
`tests/unit/services`.
"""
