"""Running jobs: a child process for each job, one at a time on a device.

``targets`` resolves what a job is for, ``announced_targets`` at all live runners, ``supervisor`` decides
what runs, ``processes`` starts and ends worker processes, ``worker`` is what runs in them.
"""
