"""Decisions before a query runs: plan, matcher, buckets, time slices."""
