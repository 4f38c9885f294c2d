"""Building a library folder: host dispatch, kernels and packing, with digests and a manifest."""
