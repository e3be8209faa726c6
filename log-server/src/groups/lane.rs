//! Lane: a thread that does what may block, one after the other, in the order it was asked.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// A thread for what may block.
#[derive(Debug)]
pub(super) struct Lane {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Lane {
    /// Starts the thread.
    ///
    /// # Panics
    /// If the operating system has no thread left.
    pub(super) fn start(name: &str) -> Lane {
        let (sender, jobs) = mpsc::channel::<Job>();
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || jobs.into_iter().for_each(|job| job()));
        let thread = thread.expect("a thread can be started");
        Lane { jobs: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) }
    }

    /// Does `job` after all that came before it. Dropped, undone, if the lane has stopped.
    pub(super) fn push(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &*self.jobs.lock() {
            // It fails only if a job has panicked: what waits for this one sees that it is dropped.
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Takes nothing more, and waits until all is done that was taken.
    pub(super) fn stop(&self) {
        self.jobs.lock().take();
        let thread = self.thread.lock().take();
        let is_self = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        if let Some(thread) = thread.filter(|thread| !is_self(thread)) {
            // A panic was told where it happened.
            let _ = thread.join();
        }
    }
}
