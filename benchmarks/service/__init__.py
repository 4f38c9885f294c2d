"""What the service costs, what it bears, and how fast it is with much in its database.

python -m benchmarks.service [costs] [load] [filled] [cancel]

Read ``base`` first; ``asking`` and ``pulls`` are for ``load``, ``fill`` and ``postgres`` for ``filled``.
"""
