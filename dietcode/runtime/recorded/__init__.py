"""Programs that CPython runs: their blocks are recorded, and computed for all instances together."""

import tvm_ffi  # noqa: F401  (the recorder needs its library)
