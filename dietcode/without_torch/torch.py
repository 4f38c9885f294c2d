"""Found in the place of PyTorch by processes that tune; see `dietcode.lean`."""

raise ImportError("a process that tunes does without PyTorch")
