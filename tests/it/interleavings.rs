//! Every interleaving of the three places where threads meet without a lock of their own: loom.
//!
//! These are models: the same steps and orderings as in the code named at each, on loom's types.

use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread::{self, Thread};

/// `disk/mmap.rs` and `partition/append.rs`: bytes are stored, then the segment's published length,
/// then the partition's end. Whoever sees an end finds the bytes below it.
#[test]
fn whoever_sees_the_end_sees_the_bytes() {
    loom::model(|| {
        let bytes = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let (published, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let writer = {
            let (bytes, published, end) = (bytes.clone(), published.clone(), end.clone());
            thread::spawn(move || {
                for at in 0..2 {
                    bytes[at].store(at as u64 + 1, Ordering::Relaxed);
                    published.store(at as u64 + 1, Ordering::Release);
                    end.store(at as u64 + 1, Ordering::Release);
                }
            })
        };
        let seen = end.load(Ordering::Acquire);
        assert!(published.load(Ordering::Acquire) >= seen, "the segment reaches the end");
        for at in 0..usize::try_from(seen).unwrap() {
            assert_eq!(bytes[at].load(Ordering::Relaxed), at as u64 + 1);
        }
        writer.join().unwrap();
    });
}

/// `partition/tail.rs`: a reader that waits is woken by the append that it did not see.
#[test]
fn no_reader_sleeps_through_an_append() {
    loom::model(|| {
        let end = Arc::new(AtomicU64::new(0));
        let waiting = Arc::new(AtomicUsize::new(0));
        let callbacks = Arc::new(Mutex::new(false));
        let told = Arc::new(AtomicBool::new(false));
        let appender = {
            let (end, waiting) = (end.clone(), waiting.clone());
            let (callbacks, told) = (callbacks.clone(), told.clone());
            thread::spawn(move || {
                end.store(1, Ordering::Release);
                fence(Ordering::SeqCst);
                if waiting.load(Ordering::Relaxed) != 0
                    && std::mem::take(&mut *callbacks.lock().unwrap())
                {
                    told.store(true, Ordering::Relaxed);
                }
            })
        };
        {
            let mut callback = callbacks.lock().unwrap();
            waiting.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if end.load(Ordering::Acquire) > 0 {
                told.store(true, Ordering::Relaxed);
            } else {
                *callback = true;
            }
        }
        appender.join().unwrap();
        assert!(told.load(Ordering::Relaxed), "the callback was lost");
    });
}

/// What a group commit shares, as in `partition/flush.rs`.
struct Flush {
    end: AtomicU64,
    durable: AtomicU64,
    state: Mutex<State>,
    /// What the disk has: set by a sync, to what was published when it began.
    on_disk: AtomicU64,
}

#[derive(Default)]
struct State {
    syncing: bool,
    threads: Vec<(u64, Thread)>,
}

impl Flush {
    fn append_and_wait(&self) {
        let mine = self.end.fetch_add(1, Ordering::AcqRel) + 1;
        while self.durable.load(Ordering::Acquire) < mine {
            let mut state = self.state.lock().expect("nobody panics");
            if self.durable.load(Ordering::Acquire) >= mine {
                break;
            }
            if state.syncing {
                state.threads.push((mine, thread::current()));
                drop(state);
                thread::park();
                continue;
            }
            state.syncing = true;
            drop(state);
            let end = self.end.load(Ordering::Acquire);
            self.on_disk.fetch_max(end, Ordering::AcqRel);
            self.durable.fetch_max(end, Ordering::AcqRel);
            self.finish(end);
        }
        assert!(self.on_disk.load(Ordering::Acquire) >= mine, "acknowledged before its sync");
    }

    /// Wakes those who are served, and one of the others to lead.
    fn finish(&self, durable: u64) {
        let mut state = self.state.lock().expect("nobody panics");
        state.syncing = false;
        let (served, mut others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.threads).into_iter().partition(|(end, _)| *end <= durable);
        if let Some((_, next)) = others.pop() {
            next.unpark();
        }
        served.iter().for_each(|(_, thread)| thread.unpark());
        state.threads = others;
    }
}

#[test]
fn every_append_of_a_group_is_on_disk_when_it_returns() {
    let mut model = loom::model::Builder::new();
    // With more preemptions it takes minutes.
    model.preemption_bound = Some(2);
    model.check(|| {
        let flush = Arc::new(Flush {
            end: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            state: Mutex::new(State::default()),
            on_disk: AtomicU64::new(0),
        });
        let others: Vec<_> = (0..2)
            .map(|_| {
                let flush = flush.clone();
                thread::spawn(move || flush.append_and_wait())
            })
            .collect();
        flush.append_and_wait();
        for other in others {
            other.join().unwrap();
        }
    });
}
