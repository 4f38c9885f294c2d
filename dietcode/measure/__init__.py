"""Measuring: build each micro-kernel and time it on full waves, in child processes with limits.

In processing order: ``points`` (which waves), ``requests`` (what children are asked and answer), ``children``
(the protocols of children and of what runs in them), ``seed_search`` (that of MetaSchedule),
``cpu_worker`` (what runs in children of a CPU), ``measurer`` (drives them, notices disturbed readings),
``least_squares`` (κ and f_local are fitted by it),
``calibration`` (κ and the device's reference reading), ``checks`` (what a line of records must hold),
``records``, ``store`` (where they are kept). Whole calls: ``disturbance`` (whether something ran beside
them), ``turns`` (several paths, timed in turns).

Where the children are: ``engine`` and ``engine_spec`` (which), ``fork_server`` and ``child_calls`` (how
they start, and answer), ``process_pool`` and ``child_process`` (how they are called), ``local`` (this
machine), ``ray_nodes``, ``ray_children``, ``ray_cluster`` and ``ray_node`` (a Ray cluster, seen from the
driver and from a node), ``rpc`` and ``rpc_worker`` (a device behind TVM's RPC tracker), ``opening`` (the
engine that is named).

GPUs: ``gpu`` (which are here), ``gpu_device`` (one as a device of an engine),
``gpu_worker`` and ``gpu_session`` (what runs in it), ``cuda_driver`` and ``device_tensors`` (what these stand
on), ``formats``.
"""
