"""Keeps process groups that a case destroys until the worker is idle.

A group's destructor waits for its communication threads while it holds the interpreter lock, up to torch 2.5 at least
(2.13 no longer does). Such a thread may still have a finished collective's tensor to let go of, and needs that lock for
it: the worker would hang. ColossalAI's plugins destroy their groups as they are collected, right after a training step.
"""

from __future__ import annotations

import time

_kept = []


def keep_destroyed_groups() -> None:
    """Have ``torch.distributed.destroy_process_group`` hold on to what it destroys.

    Called once in a process, before anything destroys a group. Everything else about destroying stays as it is: torch
    forgets the group at once.
    """
    import torch.distributed

    destroy = torch.distributed.destroy_process_group

    def destroy_and_keep(group: torch.distributed.ProcessGroup | None = None) -> None:
        _kept.append(group)
        destroy(group)

    torch.distributed.destroy_process_group = destroy_and_keep


def let_go_of_groups() -> None:
    """Let the groups go that were destroyed so far. Nothing that was started in them may be pending."""
    if _kept:
        # Sleeping gives the interpreter lock to the communication threads, which need it for microseconds.
        time.sleep(0.002)
        _kept.clear()
