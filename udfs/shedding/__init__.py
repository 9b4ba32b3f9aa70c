"""Which rows matter least: utilities, how much each kind of row may keep, and streams in front."""
