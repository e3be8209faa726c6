//! Lane: a thread that does what may block, one after the other, in the order it was asked.

use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// A thread for what may block.
#[derive(Debug)]
pub(super) struct Lane {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Its other end is dropped with the thread's last job.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Lane {
    /// Starts the thread.
    ///
    /// # Panics
    /// If the operating system has no thread left.
    pub(super) fn start(name: &str) -> Lane {
        let (sender, jobs) = mpsc::channel::<Job>();
        let (running, ended) = mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let _running = running;
            jobs.into_iter().for_each(|job| job());
        });
        let thread = thread.expect("a thread can be started");
        Lane {
            jobs: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            ended: Mutex::new(ended),
        }
    }

    /// Does `job` after all that came before it. Dropped, undone, if the lane has stopped.
    pub(super) fn push(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &*self.jobs.lock() {
            // It fails only if a job has panicked: what waits for this one sees that it is dropped.
            let _ = jobs.send(Box::new(job));
        }
    }

    /// Takes nothing more, and waits until all is done that was taken, for `timeout` at the
    /// longest; whether it is.
    pub(super) fn stop(&self, timeout: Duration) -> bool {
        self.jobs.lock().take();
        let thread = self.thread.lock().take();
        let is_self = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        let Some(thread) = thread.filter(|thread| !is_self(thread)) else { return true };
        if self.ended.lock().recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            return false;
        }
        // A panic was told where it happened.
        let _ = thread.join();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_takes_too_long_holds_up_no_stop() {
        let lane = Lane::start("test");
        let (go, wait) = mpsc::channel::<()>();
        let (done, all_done) = mpsc::channel();
        lane.push(move || assert!(wait.recv().is_err()));
        lane.push(move || done.send(()).unwrap());
        assert!(!lane.stop(Duration::from_millis(20)));
        drop(go);
        all_done.recv().expect("what was taken is done all the same");

        let quick = Lane::start("test");
        let (done, all_done) = mpsc::channel();
        quick.push(move || done.send(()).unwrap());
        assert!(quick.stop(Duration::from_secs(20)));
        all_done.try_recv().expect("it was waited for");
    }
}
