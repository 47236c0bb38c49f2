"""Records, and the run folder that holds them."""
