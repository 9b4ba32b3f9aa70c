"""Load shedding in the workers: utilities, quotas and the pace of triggers."""
