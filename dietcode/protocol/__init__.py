"""What travels between the server and its clients: one set of models for both sides."""

from __future__ import annotations

from dietcode.protocol.models import (
    FINAL_STATES,
    RESTING_STATES,
    FileFacts,
    Job,
    JobEvent,
    JobPage,
    JobState,
    KeyList,
    LibraryInfo,
    LibraryPage,
    LibraryRef,
    Problem,
    Progress,
    Runner,
    RunnerDevice,
    RunnerList,
    ServerKey,
    SubmitRequest,
    read_deadline,
)

__all__ = [
    "FINAL_STATES",
    "RESTING_STATES",
    "FileFacts",
    "Job",
    "JobEvent",
    "JobPage",
    "JobState",
    "KeyList",
    "LibraryInfo",
    "LibraryPage",
    "LibraryRef",
    "Problem",
    "Progress",
    "Runner",
    "RunnerDevice",
    "RunnerList",
    "ServerKey",
    "SubmitRequest",
    "read_deadline",
]
