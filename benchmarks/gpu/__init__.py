"""Tuning and measuring on a GPU, whose machine needs no compiler and no network.

    python3 -m benchmarks.gpu.sequence pack     elsewhere: micro-kernels with machine code, and counts
    python3 benchmarks/gpu/sequence.py run      on the GPU: measures, chooses, compares
    python3 -m benchmarks.gpu.sequence keep     elsewhere: what is shown

`overhead` looks at the calls of a library that was built from the records. What runs on the GPU's machine
needs Python, NumPy, PyTorch and Triton, and of this project files alone, nothing that is installed.
"""
