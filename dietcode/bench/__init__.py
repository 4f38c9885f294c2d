"""Measuring a library beside the vendor's kernels, interleaved in one run."""
