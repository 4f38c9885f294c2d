"""Programs: plain Python for one instance, whose tensor code becomes blocks that are batched."""
