"""A replicated partition: leader, epoch, in-sync replicas, high watermark, who waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.partition_log import PartitionLog

NO_LEADER = -1


@dataclass
class Waiter:
    """An acks=all append that is answered when the high watermark has passed it."""

    leader_id: int
    leader_epoch: int
    end_offset: int
    answer: Callable[[str], None]


class Partition:
    """The controller's view, and one log per replica."""

    def __init__(self, replicas: list[int], min_insync: int = 1) -> None:
        self.replicas = replicas
        self.leader_id = replicas[0]
        self.leader_epoch = 0
        self.isr = set(replicas)
        self.min_insync = min_insync
        # What is before has been deleted, for whoever reads.
        self.log_start_offset = 0
        self.logs = {broker_id: PartitionLog() for broker_id in replicas}
        self.waiters: list[Waiter] = []
        # What each follower has last heard, and what a new leader goes by until they have fetched.
        self.heard_high_watermarks: dict[int, int] = {}
        self._lagging_high_watermark: int | None = None
        # What leaders that were replaced go on telling until they hear of it.
        self.deposed_high_watermarks: dict[int, int] = {}
        # Committed records were given up by an unclean election: loss is the cluster's doing.
        self.is_tainted = False

    @property
    def log(self) -> PartitionLog:
        """The leader's log; the longest one while there is no leader."""
        if self.leader_id != NO_LEADER:
            return self.logs[self.leader_id]
        return max(self.logs.values(), key=lambda log: log.end_offset)

    @property
    def high_watermark(self) -> int:
        return min(self.logs[broker_id].end_offset for broker_id in self.isr)

    @property
    def told_high_watermark(self) -> int:
        """What the leader tells consumers: a new one's may lag behind the true one (KIP-207)."""
        if self._lagging_high_watermark is None or self.isr == {self.leader_id}:
            return self.high_watermark
        return min(self._lagging_high_watermark, self.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(self.told_high_watermark)

    def high_watermark_of(self, broker_id: int) -> int:
        """What ``broker_id``, which leads or does not know yet that it was deposed, tells."""
        if broker_id == self.leader_id:
            return self.told_high_watermark
        return min(self.deposed_high_watermarks[broker_id], self.logs[broker_id].end_offset)

    def replicate(self, follower_id: int) -> None:
        """The follower fetches everything that the leader has."""
        if self.leader_id not in (NO_LEADER, follower_id):
            self.heard_high_watermarks[follower_id] = self.told_high_watermark
            self.logs[follower_id].follow(self.logs[self.leader_id])
            self.answer_waiters()

    def elect(self, leader_id: int, is_clean: bool = True) -> None:
        self.is_tainted = self.is_tainted or not is_clean
        if self.leader_id not in (NO_LEADER, leader_id):
            self.deposed_high_watermarks[self.leader_id] = self.told_high_watermark
        self.deposed_high_watermarks.pop(leader_id, None)
        self.leader_id = leader_id
        self.leader_epoch += 1
        self._lagging_high_watermark = self.heard_high_watermarks.get(leader_id, 0)
        if not is_clean:
            self.isr = {leader_id}

    def drop_last_batch(self) -> bool:
        """An unclean election: the leader's log ends one batch earlier. Whether it had two."""
        if len(self.log.batches) < 2:
            return False
        self.log.drop_last_batch()
        for log in self.logs.values():
            if log is not self.log:
                log.follow(self.log)
        self.isr &= {self.leader_id}
        self.is_tainted = True
        return True

    def hear_from_followers(self) -> None:
        """They have fetched from the new leader: its high watermark is the true one."""
        self._lagging_high_watermark = None

    def shrink_isr(self, broker_id: int) -> None:
        if len(self.isr) > 1 and broker_id != self.leader_id:
            self.isr.discard(broker_id)
            self.answer_waiters()

    def expand_isr(self, broker_id: int) -> None:
        """A replica that has caught up is in sync again."""
        if self.leader_id != NO_LEADER:
            self.replicate(broker_id)
            self.isr.add(broker_id)

    def answer_waiters(self) -> None:
        """Tell those whose records all in-sync replicas have."""
        waiting, self.waiters = self.waiters, []
        for waiter in waiting:
            is_current = (waiter.leader_id, waiter.leader_epoch) == (
                self.leader_id,
                self.leader_epoch,
            )
            if not is_current or self.high_watermark < waiter.end_offset:
                self.waiters.append(waiter)
            elif len(self.isr) < self.min_insync:
                waiter.answer("NOT_ENOUGH_REPLICAS_AFTER_APPEND")
            else:
                waiter.answer("NONE")

    def forget_deposed(self, broker_id: int) -> None:
        """It has died: when it is back, it leads nothing until the controller says so."""
        self.deposed_high_watermarks.pop(broker_id, None)

    def drop_waiters_of(self, broker_id: int, error: str | None) -> None:
        """The broker is no longer leader: tell those who wait, or with None forget them."""
        mine = [waiter for waiter in self.waiters if waiter.leader_id == broker_id]
        self.waiters = [waiter for waiter in self.waiters if waiter.leader_id != broker_id]
        if error is not None:
            for waiter in mine:
                waiter.answer(error)
