"""Libraries for CUDA: machine code for several architectures, and a host part that launches it."""
