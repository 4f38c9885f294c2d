"""Measuring: build each micro-kernel and time it on full waves, in child processes with limits.

In processing order: ``points`` (which waves), ``worker`` (what runs in the children), ``measurer`` (drives
them, notices disturbed readings), ``calibration`` (κ and the device's reference reading), ``checks``
(what a line of records must hold), ``records``, ``store`` (where they are kept).
"""
