"""What every device's micro-kernels can do with tiles that reach past an edge."""

# The paper's Figure 7 d, c, b, a; the first is the default.
TAILS = ("local", "partition", "global", "checked")
