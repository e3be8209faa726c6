//! State: everything that a consumer's tasks and its user share, under one lock.
//!
//! The membership lives here, with what it decides over: a revoke is seen by the next hand-over.
//! Nothing here waits. What is to be sent is put into the outbox; who is to look, is woken.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use log_core::OffsetRange;
use log_core::protocol::groups::GrantV1;
use log_core::protocol::offsets::PositionV1;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::event::{ConsumerEvent, Events, TopicPartition};
use super::membership::{Action, Event, Membership, PartitionId};
use super::partition::{Chunk, Found, Owned};
use super::record::Source;
use super::settings::{CommitMode, Settings};
use crate::error::{Error, Result};

/// Why there is nothing for the user.
#[derive(Debug)]
pub(super) enum Next<T> {
    Found(T),
    /// This chunk is to be opened first.
    Closed(Source, u64, Chunk),
    Failed(Error),
    Wait,
    End,
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) settings: Settings,
    pub(super) group: Option<String>,
    started: Instant,
    /// Wakes the user who waits for records.
    pub(super) ready: Notify,
    /// Wake the tasks.
    pub(super) fetch: Notify,
    pub(super) session: Notify,
    pub(super) commit: Notify,
    /// Wakes those who wait for a change: of the membership, of events.
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) settings: Settings,
    pub(super) membership: Option<Membership>,
    pub(super) partitions: BTreeMap<PartitionId, Owned>,
    /// What the membership wants to be sent.
    pub(super) outbox: Vec<Action>,
    pub(super) events: Events,
    /// Errors of partitions, each to be told once.
    pub(super) errors: VecDeque<Error>,
    /// The server's answers to fetches can't be used, which was told.
    pub(super) fetch_fails: bool,
    /// The membership is over; with a reason, if it was not asked for.
    pub(super) over: bool,
    pub(super) fatal: Option<Error>,
    /// What was done last may not be committed, though the consumer was closed for that.
    pub(super) unreleased: Option<Error>,
    /// The user wants no more records.
    pub(super) stopped: bool,
    /// The consumer is gone.
    pub(super) closed: bool,
    pub(super) closing: bool,
    /// The user comes back after the processing limit was passed.
    overdue: bool,
    /// What the user got last, if being asked for more makes it done.
    last: Option<(Source, OffsetRange)>,
    turn: Option<PartitionId>,
    /// A partition has room again.
    pub(super) wake_fetch: bool,
    assignments: u64,
    /// Who waits for a commit that has not begun; none if nobody would answer.
    pub(super) commit_waiters: Option<Vec<oneshot::Sender<Result<()>>>>,
}

impl Shared {
    pub(super) fn new(
        settings: Settings,
        group: Option<String>,
        membership: Option<Membership>,
    ) -> Arc<Shared> {
        let state = State {
            settings: settings.clone(),
            membership,
            partitions: BTreeMap::new(),
            outbox: Vec::new(),
            events: Events::default(),
            errors: VecDeque::new(),
            fetch_fails: false,
            over: false,
            fatal: None,
            unreleased: None,
            stopped: false,
            closed: false,
            closing: false,
            overdue: false,
            last: None,
            turn: None,
            wake_fetch: false,
            assignments: 0,
            commit_waiters: Some(Vec::new()),
        };
        Arc::new(Shared {
            state: Mutex::new(state),
            settings,
            group,
            started: Instant::now(),
            ready: Notify::new(),
            fetch: Notify::new(),
            session: Notify::new(),
            commit: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// The state. Never held over an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn instant(&self, at: Duration) -> Instant {
        self.started + at
    }

    /// Takes an event of the membership, and wakes whoever it concerns.
    pub(super) fn on(&self, event: Event) {
        let now = self.now();
        self.lock().on(event, now);
        self.wake_all();
    }

    pub(super) fn wake_all(&self) {
        self.ready.notify_one();
        self.fetch.notify_one();
        self.session.notify_one();
        self.changed.notify_waiters();
    }
}

impl State {
    /// Takes an event of the membership; what it wants to be sent waits in the outbox then.
    pub(super) fn on(&mut self, event: Event, now: Duration) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(membership) = &mut self.membership else { return };
            for action in membership.on(event, now) {
                self.follow(action, now, &mut events);
            }
        }
    }

    fn follow(&mut self, action: Action, now: Duration, events: &mut VecDeque<Event>) {
        match action {
            Action::Join(..) | Action::Heartbeat(..) | Action::Release(_) | Action::Leave(..) => {
                self.outbox.push(action);
            }
            Action::Assign(grant) => self.assign_grant(grant),
            Action::Drain(id, epoch, deadline) => {
                let closing = self.closing;
                let Some(owned) = self.granted(id, epoch) else { return };
                owned.draining = true;
                owned.drop_buffered();
                let of = owned.named();
                let time_left = deadline.saturating_sub(now);
                if !closing {
                    self.events.push(ConsumerEvent::Revoking { of, time_left });
                }
                events.extend(self.drained(id));
            }
            Action::Expire(id, epoch) => {
                let mode = self.settings.mode;
                if let Some(owned) = self.granted(id, epoch) {
                    let position = owned.to_release(mode);
                    events.push_back(Event::Drained(id, epoch, position));
                }
            }
            Action::Released(id, epoch) => {
                if let Some(of) = self.remove(id, epoch) {
                    self.events.push(ConsumerEvent::Released { of });
                }
            }
            Action::Overdue => self.overdue = true,
            Action::Lose(id, epoch, reason) => {
                if let Some(of) = self.lose(id, epoch) {
                    self.events.push(ConsumerEvent::Lost { of, reason });
                }
            }
            Action::Forced(id, epoch) => {
                if let Some(of) = self.lose(id, epoch) {
                    self.events.push(ConsumerEvent::Forced { of });
                }
            }
            Action::End(refusal) => {
                self.over = true;
                self.fatal = refusal.map(Error::Refused);
            }
        }
    }

    fn granted(&mut self, id: PartitionId, epoch: u64) -> Option<&mut Owned> {
        self.partitions.get_mut(&id).filter(|owned| owned.epoch == epoch)
    }

    fn remove(&mut self, id: PartitionId, epoch: u64) -> Option<TopicPartition> {
        self.granted(id, epoch)?;
        self.partitions.remove(&id).map(|owned| owned.named())
    }

    /// Removes a partition that was not released, or nobody knows whether it was.
    fn lose(&mut self, id: PartitionId, epoch: u64) -> Option<TopicPartition> {
        let (closing, mode) = (self.closing, self.settings.mode);
        let owned = self.granted(id, epoch)?;
        let releases = owned.to_release(mode).is_some() && owned.tracker.to_commit().is_some();
        if closing && releases {
            let of = format!("{}/{}", owned.topic, id.partition);
            let why = format!("no release of {of} was confirmed: its last records may come again");
            self.unreleased.get_or_insert(Error::unknown(why));
        }
        self.remove(id, epoch)
    }

    fn assign_grant(&mut self, grant: GrantV1) {
        let id = PartitionId { topic_id: grant.topic_id, partition: grant.partition };
        self.assign(Arc::from(grant.topic), id, grant.epoch, &grant.position);
    }

    /// Reads a partition from now on.
    pub(super) fn assign(
        &mut self,
        topic: Arc<str>,
        id: PartitionId,
        epoch: u64,
        start: &PositionV1,
    ) {
        self.assignments += 1;
        let source = Source { id, assignment: self.assignments };
        let owned = Owned::new(topic, source, epoch, start, self.settings.max_ahead);
        let (of, position) = (owned.named(), owned.position);
        self.partitions.insert(id, owned);
        self.events.push(ConsumerEvent::Assigned { of, position });
    }

    /// The event that a partition is drained, if it is.
    pub(super) fn drained(&self, id: PartitionId) -> Option<Event> {
        let owned = self.partitions.get(&id).filter(|owned| owned.draining)?;
        let position = owned.to_release(self.settings.mode);
        // It may still be committed, as long as there is time.
        let uncommitted = position.is_none() && owned.tracker.to_commit().is_some();
        let busy = owned.tracker.has_in_hand() || uncommitted;
        if owned.committing || busy && !self.closing {
            return None;
        }
        Some(Event::Drained(id, owned.epoch, position))
    }

    /// Looks whether a partition is drained; returns whether there is something to send.
    pub(super) fn check_drained(&mut self, id: PartitionId, now: Duration) -> bool {
        match self.drained(id) {
            Some(event) => {
                self.on(event, now);
                true
            }
            None => false,
        }
    }

    /// Since when the oldest record has been in the user's hands.
    pub(super) fn oldest_in_hand(&self) -> Option<Duration> {
        self.partitions.values().filter_map(|owned| owned.tracker.oldest()).min()
    }

    /// The user is back: what was handed over last is done, if that is how it is done. Returns
    /// whether there is something to send.
    pub(super) fn user_is_back(&mut self, now: Duration) -> bool {
        let mut send = false;
        if std::mem::take(&mut self.overdue) {
            self.on(Event::Returned, now);
            send = true;
        }
        if let Some((source, offsets)) = self.last.take() {
            send |= self.finish(source, offsets, now).unwrap_or(false);
        }
        send
    }

    /// Marks records as done. `None`: they are not this consumer's any more. Else, whether there is
    /// something to send.
    pub(super) fn finish(
        &mut self,
        source: Source,
        offsets: OffsetRange,
        now: Duration,
    ) -> Option<bool> {
        let owned = self.partitions.get_mut(&source.id)?;
        if owned.source != source {
            return None;
        }
        let stood = owned.position >= owned.tracker.limit();
        owned.tracker.finish(offsets);
        let draining = owned.draining;
        self.wake_fetch |= stood;
        Some(draining && self.check_drained(source.id, now))
    }

    fn may_hand_over(&self, owned: &Owned, now: Duration) -> bool {
        let granted = match &self.membership {
            Some(membership) => membership.may_hand_over(owned.id(), owned.epoch, now),
            None => true,
        };
        granted && !owned.paused && !owned.halted && !owned.draining
    }

    /// The next thing for the user, as `take` finds it in a partition. Partitions take turns: one
    /// hands out what it has opened before the next does.
    pub(super) fn next<T>(
        &mut self,
        now: Duration,
        take: impl Fn(&mut Owned, Duration) -> Found<T>,
        span: impl Fn(&T) -> (Source, OffsetRange),
    ) -> Next<T> {
        if let Some(error) = self.errors.pop_front() {
            return Next::Failed(error);
        }
        if self.stopped || self.closing {
            return Next::End;
        }
        if let Some(error) = &self.fatal {
            return Next::Failed(error.clone());
        }
        let mut last = None;
        for _ in 0..self.partitions.len() {
            let turn = last.map_or_else(|| self.first_turn(), |id| self.after(id));
            let Some(id) = turn else { break };
            last = turn;
            let may = self.partitions.get(&id).is_some_and(|owned| self.may_hand_over(owned, now));
            let Some(owned) = self.partitions.get_mut(&id).filter(|_| may) else { continue };
            self.turn = Some(id);
            let found = take(owned, now);
            self.wake_fetch |= owned.take_freed();
            match found {
                Found::Ready(found) => {
                    if self.settings.mode != CommitMode::Manual {
                        self.last = Some(span(&found));
                    }
                    return Next::Found(found);
                }
                Found::Closed(chunk) => {
                    return Next::Closed(owned.source, owned.generation, chunk);
                }
                Found::Stopped(stop) => {
                    self.stopped_at(id, stop);
                    self.wake_fetch = true;
                    if let Some(error) = self.errors.pop_front() {
                        return Next::Failed(error);
                    }
                }
                Found::Nothing => {}
            }
        }
        Next::Wait
    }

    /// Whose turn it is: a partition hands out what it has opened before the next has its turn.
    fn first_turn(&self) -> Option<PartitionId> {
        let Some(turn) = self.turn else { return self.partitions.keys().next().copied() };
        match self.partitions.get(&turn) {
            Some(owned) if owned.has_open() => Some(turn),
            _ => self.after(turn),
        }
    }

    fn after(&self, id: PartitionId) -> Option<PartitionId> {
        let mut after = self.partitions.range((Bound::Excluded(id), Bound::Unbounded));
        after.next().or_else(|| self.partitions.first_key_value()).map(|(id, _)| *id)
    }

    /// The partition of that name, if it is read.
    pub(super) fn find(&mut self, topic: &str, partition: u32) -> Option<&mut Owned> {
        self.partitions
            .values_mut()
            .find(|owned| owned.source.id.partition == partition && owned.topic.as_ref() == topic)
    }

    pub(super) fn owned(&mut self, source: Source, generation: u64) -> Option<&mut Owned> {
        let owned = self.partitions.get_mut(&source.id)?;
        (owned.source == source && owned.generation == generation).then_some(owned)
    }
}

#[cfg(test)]
mod tests {
    use log_core::protocol::offsets::PositionV1;

    use super::super::partition::Run;
    use super::super::partition::tests::chunk;
    use super::super::record::tests::{LIMITS, source};
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    #[test]
    fn what_is_committed_before_it_is_handed_over_is_released_only_as_far_as_it_was() {
        let settings = Settings { mode: CommitMode::AtMostOnce, ..Settings::default() };
        let shared = Shared::new(settings, None, None);
        let mut state = shared.lock();
        let id = source().id;
        state.assign(Arc::from("orders"), id, 1, &PositionV1::at(0));
        let owned = state.partitions.get_mut(&id).unwrap();
        owned.opened(Run::open(&chunk(&[(0, 3)]), LIMITS));
        let Found::Ready(records) = owned.take_run(NOW) else { panic!("a run is there") };
        owned.withholds = true;
        owned.draining = true;
        state.finish(records.source, records.offsets, NOW).unwrap();
        assert!(state.drained(id).is_none(), "its commit is still to come");
        let owned = state.partitions.get_mut(&id).unwrap();
        assert_eq!(owned.to_release(CommitMode::AtMostOnce), None, "when the time is up");
        owned.tracker.committed(PositionV1::at(3));
        assert!(matches!(state.drained(id), Some(Event::Drained(_, 1, None))));
        state.partitions.get_mut(&id).unwrap().withholds = false;
        let drained = state.drained(id);
        let Some(Event::Drained(_, 1, Some(position))) = drained else { panic!("{drained:?}") };
        assert_eq!(position, PositionV1::at(3));
    }
}
