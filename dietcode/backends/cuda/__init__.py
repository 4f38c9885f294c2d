"""GPUs: ``backend`` (the door), ``domain`` (space and cost model), ``measuring`` (the device at work) and
``calibration`` (its sweep for κ).
"""
