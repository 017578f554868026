"""The program: the agent as a speaker of the app-server protocol."""

import sys

from symphony.testing.scripted_agent.protocol import Wire, live, read_switches, write_stdout
from symphony.testing.scripted_agent.server import Server


def main(argv: list[str] | None = None) -> int:
    """Run the program `symphony-scripted-agent` until the client closes stdin."""
    faults = read_switches(sys.argv[1:] if argv is None else argv)
    return live(faults, lambda: Server(Wire(write_stdout, faults), faults))


if __name__ == "__main__":
    sys.exit(main())
