"""What people see: logs, snapshots and summaries, all derived from what the scheduler decided on."""
