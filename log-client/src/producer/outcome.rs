//! Delivery: the future outcome of records that were sent; one for all records of a batch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use log_core::protocol::produce::Produced;
use log_core::{Offset, Timestamp};
use parking_lot::Mutex;

use crate::error::Result;

/// Where a record is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The partition.
    pub partition: u32,
    /// Its offset; of several records, that of the first, and the others follow. None if no answer
    /// was asked for (`Acks::None`).
    pub offset: Option<Offset>,
    /// When the partition took it.
    pub append_time: Option<Timestamp>,
    /// Whether it had been appended by an earlier attempt.
    pub duplicate: bool,
}

/// What became of a batch: nothing, if no answer was asked for.
pub(crate) type BatchResult = Result<Option<Produced>>;

/// The outcome of one batch, shared by the deliveries of its records.
#[derive(Debug)]
pub(crate) struct Outcome {
    partition: u32,
    state: Mutex<OutcomeState>,
}

#[derive(Debug, Default)]
struct OutcomeState {
    result: Option<BatchResult>,
    /// Those who wait; each keeps its place.
    wakers: Vec<Waker>,
}

impl Outcome {
    pub(crate) fn new(partition: u32) -> Arc<Outcome> {
        Arc::new(Outcome { partition, state: Mutex::default() })
    }

    /// Tells all who wait.
    ///
    /// # Panics
    /// If it was told before: each batch ends once.
    pub(crate) fn complete(&self, result: BatchResult) {
        let wakers = {
            let mut state = self.state.lock();
            assert!(state.result.is_none(), "a batch ends once");
            state.result = Some(result);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// What is told to the record at this place of the batch.
    fn of_record(&self, result: &BatchResult, index: u32) -> Result<Appended> {
        let produced = result.clone()?;
        Ok(Appended {
            partition: self.partition,
            // What the server says may be anything.
            offset: produced.map(|produced| produced.base_offset.saturating_add(index.into())),
            append_time: produced.map(|produced| produced.append_time),
            duplicate: produced.is_some_and(|produced| produced.duplicate),
        })
    }
}

/// What will become of records that were sent. Awaited, it ends once: appended, surely not
/// appended, or `OutcomeUnknown`. Dropping it changes nothing.
#[derive(Debug)]
#[must_use = "only awaiting it tells whether the record was appended"]
pub struct Delivery {
    outcome: Arc<Outcome>,
    index: u32,
    /// Its place among those who wait, once it waits.
    place: Option<usize>,
}

impl Delivery {
    pub(crate) fn new(outcome: Arc<Outcome>, index: u32) -> Delivery {
        Delivery { outcome, index, place: None }
    }

    /// The partition that was chosen.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.outcome.partition
    }
}

impl Future for Delivery {
    type Output = Result<Appended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut state = this.outcome.state.lock();
        if let Some(result) = &state.result {
            return Poll::Ready(this.outcome.of_record(result, this.index));
        }
        match this.place {
            Some(place) => state.wakers[place].clone_from(context.waker()),
            None => {
                this.place = Some(state.wakers.len());
                state.wakers.push(context.waker().clone());
            }
        }
        Poll::Pending
    }
}
