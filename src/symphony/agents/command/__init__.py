"""The backend for one-shot programs: a process for each turn, which leaves an exit code and changed files."""
