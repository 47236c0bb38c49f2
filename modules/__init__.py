"""The context modules, one a file; the registry finds them by scanning this folder."""
