//! Parallel: the same work on many partitions, whose syncs should not wait for one another.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, scope};

use parking_lot::Mutex;

/// Does `work` on each item, on up to `threads_max` threads; the results are in order.
pub(super) fn for_each<T, R>(
    items: &[T],
    threads_max: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R>
where
    T: Sync,
    R: Send,
{
    let threads = threads_max.min(items.len());
    if threads <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        while let Some((index, item)) = take(&next, items) {
            let result = work(item);
            results.lock().push((index, result));
        }
    };
    scope(|scope| {
        for _ in 1..threads {
            // Where no thread can be had, those that run do all of it.
            let _ = Builder::new().name("log-core-open".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(next: &AtomicUsize, items: &'a [T]) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    items.get(index).map(|item| (index, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whatever_the_threads_do() {
        let items: Vec<u32> = (0..100).collect();
        for threads in [0, 1, 2, 7, 1_000] {
            let doubled = for_each(&items, threads, |item| item * 2);
            assert_eq!(doubled, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        }
        assert_eq!(for_each(&[] as &[u32], 4, |item| *item), []);
    }
}
