"""What differs between kinds of devices, behind one protocol.

``protocol`` (what a kind of device has to say), ``table`` (from kind to backend; outside of it there is no
branch on the kind), ``cpu``, ``cuda``. What records hold of a kind is in `dietcode.measure.formats`, which
needs no compiler.
"""
