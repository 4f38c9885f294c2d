"""Building a library folder: ``parts`` (its input), ``files`` (all kinds), ``build`` (CPUs), ``cuda``,
``c_header`` (for callers in C)."""
