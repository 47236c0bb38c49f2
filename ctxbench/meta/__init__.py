"""Modules without data: on the meta device, and what torch does before the first computation there."""
