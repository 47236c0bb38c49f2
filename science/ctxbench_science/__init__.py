"""Plugins for research: claims, numeric properties, recall, training in 16 bits, published gains, runs on a cluster."""
