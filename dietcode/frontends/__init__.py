"""Front ends: what users write, read into blocks and bundles."""
