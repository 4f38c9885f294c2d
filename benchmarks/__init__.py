"""Benchmarks: each writes JSON with device, commit, versions and date. None is a test."""
