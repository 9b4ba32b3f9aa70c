"""What is decided before anything runs: the plan, how many buckets, whether time is sliced."""
