"""Targets: what a spec asks for, resolved to a concrete machine and its limits."""
