"""Texts to instructions: patterns and conditions parsed, checked, typed; nothing touches data."""
