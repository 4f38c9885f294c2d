"""Programs.

`code` reads functions and their instructions, `plan` a bundle's description, `machine` makes a native machine
of it, `instances` are what goes in, `results` what comes out, `failures` why an instance has none, `loaded`
is what a user calls, `loading` opens a bundle.
"""
