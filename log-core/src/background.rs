//! Background: threads that run what may block, off the hot path; or a queue that a test drains.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};

/// Something to run.
pub type Job = Box<dyn FnOnce() + Send>;

/// A handle to the threads; clones share them.
#[derive(Clone)]
pub struct Background(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Zero: jobs wait for [`Background::run_pending`].
    threads_max: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl Background {
    /// Up to `max` threads, started as they are needed.
    #[must_use]
    pub fn threads(max: usize) -> Background {
        Background::new(max.max(1))
    }

    /// No threads: jobs wait until [`Background::run_pending`] runs them, so that a test decides
    /// when they happen.
    #[must_use]
    pub fn manual() -> Background {
        Background::new(0)
    }

    fn new(threads_max: usize) -> Background {
        let state = Mutex::new(State::default());
        Background(Arc::new(Shared { state, changed: Condvar::new(), threads_max }))
    }

    /// Whether jobs run by themselves.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.0.threads_max > 0
    }

    /// Queues a job. After [`Background::close`] it is dropped: nothing waits for it any more.
    pub fn submit(&self, job: Job) {
        let mut state = self.0.state.lock();
        if state.closed {
            return;
        }
        state.jobs.push_back(job);
        if state.jobs.len() > state.idle && state.threads.len() < self.0.threads_max {
            let shared = Arc::clone(&self.0);
            let name = format!("log-core-{}", state.threads.len());
            // Where no thread can be had, those that run get to the job later.
            if let Ok(thread) = Builder::new().name(name).spawn(move || shared.work()) {
                state.threads.push(thread);
            }
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Runs what is queued, and what that queues, on this thread; returns how many jobs it was.
    pub fn run_pending(&self) -> usize {
        let mut count = 0;
        loop {
            let next = self.0.state.lock().jobs.pop_front();
            let Some(job) = next else { return count };
            job();
            count += 1;
        }
    }

    /// Lets the threads finish what is queued, and waits for them.
    pub fn close(&self) {
        let threads = {
            let mut state = self.0.state.lock();
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.0.changed.notify_all();
        let own = std::thread::current().id();
        for thread in threads {
            // The last handle may go in one of its own jobs.
            if thread.thread().id() != own {
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A user's callback that panics is told by the panic hook; the thread goes on.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.state.lock();
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                self.changed.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Background {{ threads_max: {} }}", self.0.threads_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn jobs_run_on_threads_and_close_waits_for_them() {
        let background = Background::threads(3);
        let done = Arc::new(AtomicU32::new(0));
        for _ in 0..100 {
            let done = Arc::clone(&done);
            background.submit(Box::new(move || {
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        background.close();
        assert_eq!(done.load(Ordering::SeqCst), 100);
    }

    #[test]
    fn manual_jobs_wait_for_the_test() {
        let background = Background::manual();
        let again = background.clone();
        background.submit(Box::new(move || again.submit(Box::new(|| ()))));
        assert_eq!(background.run_pending(), 2);
    }
}
