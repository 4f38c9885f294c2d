"""The ways to treat tiles that reach past an edge, which all devices share."""

# The paper's Figure 7 d, c, b, a; the first is the default.
TAILS = ("local", "partition", "global", "checked")
