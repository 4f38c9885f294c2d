"""Programs that CPython runs: their blocks are recorded, and computed for all instances together."""
