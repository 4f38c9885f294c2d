"""GPUs: ``model`` (blocks and waves of every instance, f_local and κ fitted), ``fitting`` (every measured
micro-kernel and instance), ``features`` (what f_local is learned from).
"""
