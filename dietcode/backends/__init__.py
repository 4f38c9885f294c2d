"""What differs between kinds of devices, behind one protocol.

``protocol`` (what a kind of device provides), ``table`` (from kind to backend; there is no other branch on
the kind), ``cpu``, ``cuda``. What records hold of a kind is in `dietcode.measure.formats`, which
needs no compiler.
"""

from dietcode.extras import need

need("tune", "dietcode.tuner")
