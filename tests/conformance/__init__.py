"""The proof that the daemon keeps the rules: which test shows which rule, as data, report and check.

It stands beside the tests and not in the package, because it is about them: nothing here runs in a daemon.
`python -m conformance --help`, with this folder's parent on the path, tells how to use it.
"""
