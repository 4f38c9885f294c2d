"""Tuning and measuring on a GPU, whose machine needs no compiler and no network. In turn there and elsewhere:

    python -m benchmarks.gpu.pack examples/bert-dense.yaml -o build/gpu/pack       elsewhere
    python benchmarks/gpu/measure.py build/gpu/pack -o records.jsonl               on the GPU
    python -m benchmarks.gpu.chosen examples/bert-dense.yaml records.jsonl build/gpu
    python benchmarks/gpu/compare.py build/gpu/chosen -o compared.json             on the GPU

`sequence` does this for all workloads, and `overhead` looks at the calls of a library that was built. What
runs on the GPU's machine needs Python, PyTorch and Triton, no network and, but for `overhead`, nothing of
this project.
"""
