"""Trust: who signed a library, and whether this machine trusts them: ed25519 keys and DSSE envelopes.

In processing order: ``keys``, ``envelope``, ``statements``, ``rotation``, ``pins``. The server signs with
these too. ``docs/signing.md`` says what is signed, and what that protects from.
"""
