"""The imperative shell: carries the scheduler's commands out and feeds facts back."""
