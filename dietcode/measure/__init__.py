"""Measuring: build each micro-kernel and time it on full waves, in child processes with limits.

In processing order: ``points`` (which waves), ``worker`` (what runs in the children), ``measurer`` (drives
them, notices disturbed readings), ``calibration`` (κ and the device's reference reading), ``checks``
(what a line of records must hold), ``records``, ``store`` (where they are kept).

Where the children are: ``engine`` and ``engine_spec`` (which), ``local`` (this machine), ``ray_cluster``,
``ray_children`` and ``ray_node`` (a Ray cluster, seen from the driver and from a node), ``rpc`` and
``rpc_worker`` (a device behind TVM's RPC tracker).

GPUs: ``gpu`` (which are here), ``gpu_children`` (the process that measures, seen from outside),
``gpu_worker`` and ``gpu_session`` (what runs in it), ``cuda_driver`` and ``device_tensors`` (what these stand
on), ``cuda_records``.
"""
