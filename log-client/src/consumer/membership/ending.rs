//! How a membership ends: leaving, being over the processing limit, being stopped.

use std::time::Duration;

use log_core::protocol::groups::LeaveGroupV1;
use log_core::protocol::{ErrorCode, Refusal};

use super::{
    Action, Failure, Leaving, LostReason, Membership, PartitionId, Phase, RETRY_FIRST, millis,
};

impl Membership {
    /// When the oldest record in hand will have been there for too long.
    pub(super) fn overdue_at(&self) -> Option<Duration> {
        let since = self.in_hand.filter(|_| self.phase == Phase::Member)?;
        Some(since.saturating_add(self.config.processing_timeout))
    }

    /// Gives everything up before the server takes it away: what hangs here goes elsewhere.
    pub(super) fn give_everything_up(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for (partition, epoch) in self.grants.abandon_all(now) {
            actions.push(Action::Lose(partition, epoch, LostReason::ProcessingTimeout));
        }
        self.in_hand = None;
        actions.push(Action::Overdue);
        self.begin_leaving(None, true, now);
    }

    pub(super) fn returned(&mut self, now: Duration) {
        match &mut self.phase {
            Phase::Resting => self.come_back(now),
            Phase::Leaving(leaving) => leaving.returned = true,
            _ => {}
        }
    }

    pub(super) fn leave(
        &mut self,
        keep: Option<Duration>,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        match &mut self.phase {
            // Nobody knows of it, or nobody will: a join may be under way.
            Phase::Apart { .. } | Phase::Resting if self.grants.is_empty() => {
                self.end(None, actions);
            }
            Phase::Leaving(leaving) => leaving.rejoin = false,
            _ => {
                self.begin_leaving(keep, false, now);
                if keep.is_none() {
                    let deadline = now.saturating_add(self.config.drain_timeout);
                    self.grants.drain_all(deadline, actions);
                }
            }
        }
    }

    fn begin_leaving(&mut self, keep: Option<Duration>, rejoin: bool, now: Duration) {
        // A drain ends at its deadline; its release has a moment to arrive after that.
        let patience = self.config.drain_timeout + self.session_timeout / 2;
        self.phase = Phase::Leaving(Leaving {
            keep,
            call: None,
            retry_at: now,
            answered: false,
            deadline: now.saturating_add(patience),
            rejoin,
            returned: false,
        });
    }

    pub(super) fn send_leave(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let next = self.calls + 1;
        let Phase::Leaving(leaving) = &mut self.phase else { return };
        if leaving.answered || leaving.call.is_some() || leaving.retry_at > now {
            return;
        }
        leaving.call = Some(next);
        self.calls = next;
        let keep = leaving.keep.map(millis);
        actions
            .push(Action::Leave(next, LeaveGroupV1 { member: self.config.member.clone(), keep }));
    }

    pub(super) fn left(&mut self, call: u64) {
        if let Phase::Leaving(leaving) = &mut self.phase
            && leaving.call == Some(call)
        {
            leaving.call = None;
            leaving.answered = true;
        }
    }

    pub(super) fn leave_failed(
        &mut self,
        call: u64,
        failure: Failure,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Phase::Leaving(leaving) = &mut self.phase else { return };
        if leaving.call != Some(call) {
            return;
        }
        leaving.call = None;
        leaving.retry_at = now + 2 * RETRY_FIRST;
        let unknown = failure.is_unknown_member();
        let fenced = failure.is(ErrorCode::Fenced);
        // Whoever is refused is not a member, which is what was asked for.
        if let Some(refusal) = failure.into_final() {
            leaving.answered = true;
            if fenced && leaving.rejoin {
                self.stop(refusal, actions);
            } else if !unknown {
                self.end(None, actions);
            }
        }
    }

    /// While it is not known whether the leave has arrived, a release would only bring the
    /// partition back.
    pub(super) fn may_release(&self) -> bool {
        match &self.phase {
            Phase::Member => true,
            Phase::Leaving(leaving) => leaving.answered && leaving.keep.is_none(),
            _ => false,
        }
    }

    pub(super) fn finish_leaving(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let Phase::Leaving(leaving) = &self.phase else { return };
        let through = leaving.answered && (leaving.keep.is_some() || self.grants.is_empty());
        if !through && leaving.deadline > now {
            return;
        }
        let (rejoin, returned) = (leaving.rejoin, leaving.returned);
        if !rejoin {
            self.end(None, actions);
            return;
        }
        self.lose_all(LostReason::Taken, actions);
        self.heartbeats.last_answered_sent = None;
        self.phase = Phase::Resting;
        if returned {
            self.come_back(now);
            self.join(actions);
        }
    }

    /// Joins again after a leave: as a newer run, since a join of the one that has left may be a
    /// late one.
    fn come_back(&mut self, now: Duration) {
        self.config.member.incarnation = self.config.member.incarnation.saturating_add(1);
        self.phase = Phase::Apart { join_at: now };
    }

    pub(super) fn release_failed(
        &mut self,
        partition: PartitionId,
        epoch: u64,
        failure: Failure,
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let fenced = failure.is(ErrorCode::Fenced);
        let unknown = failure.is_unknown_member();
        let Some(refusal) = failure.into_final() else {
            self.grants.release_again(partition, epoch, now);
            return;
        };
        let known = self.grants.is_known(partition, epoch);
        if self.grants.remove(partition, epoch) {
            self.heartbeats.news = true;
            if known {
                actions.push(Action::Forced(partition, epoch));
            }
        }
        if fenced {
            if self.is_of_older_run(&refusal) {
                return;
            }
            self.stop(refusal, actions);
        } else if unknown {
            self.forgotten(now);
        }
    }

    /// Stops for good: what was refused will be refused again.
    pub(super) fn stop(&mut self, refusal: Refusal, actions: &mut Vec<Action>) {
        self.end(Some(refusal), actions);
    }

    fn end(&mut self, refusal: Option<Refusal>, actions: &mut Vec<Action>) {
        self.phase = Phase::Ended;
        self.lose_all(LostReason::Stopped, actions);
        actions.push(Action::End(refusal));
    }

    fn lose_all(&mut self, reason: LostReason, actions: &mut Vec<Action>) {
        for (partition, epoch) in self.grants.clear() {
            actions.push(Action::Lose(partition, epoch, reason));
        }
    }
}
