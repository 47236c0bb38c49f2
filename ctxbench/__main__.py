"""`python -m ctxbench` is the command `ctxbench`."""

from ctxbench.cli import main

main()
