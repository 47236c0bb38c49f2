"""Where in a module its costs lie: each operator call booked to its submodule, its source line and its operator."""
