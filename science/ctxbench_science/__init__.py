"""Plugins for what the findings need: numeric properties, recall, training in 16 bits."""
