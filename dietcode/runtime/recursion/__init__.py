"""Recursions.

`structure` is what they run over, `plan` reads a bundle's description, `workspace` is the memory of a call,
`program` makes a native loop of it, `loaded` is what a user calls, `loading` opens a bundle.
"""
