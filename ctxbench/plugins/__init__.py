"""The plugins, a folder each: see `ctxbench.plugin`."""
