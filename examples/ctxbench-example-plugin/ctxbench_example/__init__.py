"""Context modules for ctxbench, found through the entry points of this package."""
