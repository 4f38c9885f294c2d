"""Programs that CPython runs and that record block calls."""
