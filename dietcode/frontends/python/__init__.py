"""Programs in Python: regions of tensor code found while samples run, and blocks made of them."""
