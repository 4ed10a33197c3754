"""What a run will take, before it runs: tokens, time, memory, disk; and beside it what a run has taken."""
