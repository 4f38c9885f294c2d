"""The figures and the table of the DietCode paper's evaluation, measured with this system on this device.

    make evidence                                     # or python -m benchmarks.evidence
    python -m benchmarks.evidence --only figure-10,figure-13 --keep
    python -m benchmarks.evidence --pages             # plots and pages again, from what was measured

Writes ``docs/evidence/<device>/<figure>.json`` (raw, with device, commit, date and versions), a plot beside
it, and a page for the device. Run it with nothing else on the machine.

GPUs are measured elsewhere, by `benchmarks/gpu`: what it wrote goes to ``benchmarks/records/<device>/``, and
each run, also with ``--pages``, makes their pages from that. Records that no device measured are refused.
"""
