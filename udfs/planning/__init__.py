"""Plans from statistics: what a plan costs, which one is cheapest, when to make another.

Runs on the driver, and in the workers between advances. Nothing here touches events.
"""
