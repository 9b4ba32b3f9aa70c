"""The meaning of event patterns, executed naively: what every engine is compared with."""
