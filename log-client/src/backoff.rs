//! Backoff: how long to wait before each next attempt: doubling, capped, jittered.

use std::time::Duration;

/// How waits grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The first wait, before jitter; each one after it is twice as long, …
    pub first: Duration,
    /// … up to this one.
    pub most: Duration,
}

impl Default for BackoffPolicy {
    fn default() -> BackoffPolicy {
        BackoffPolicy { first: Duration::from_millis(20), most: Duration::from_secs(2) }
    }
}

/// The waits between attempts, without end. Each is between half of its step and the whole of it,
/// so that clients that failed together do not come back together.
#[derive(Debug, Clone)]
pub struct Backoff {
    policy: BackoffPolicy,
    step: Duration,
    random: u64,
}

impl Backoff {
    /// The waits of this policy, with jitter of their own.
    #[must_use]
    pub fn new(policy: BackoffPolicy) -> Backoff {
        Backoff::with_seed(policy, random_number())
    }

    /// The waits of this policy; the same seed gives the same waits.
    #[must_use]
    pub fn with_seed(policy: BackoffPolicy, seed: u64) -> Backoff {
        Backoff { policy, step: policy.first.min(policy.most), random: seed }
    }

    /// Begins anew, with the first wait: an attempt has succeeded.
    pub fn reset(&mut self) {
        self.step = self.policy.first.min(self.policy.most);
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let step = self.step;
        self.step = step.saturating_mul(2).min(self.policy.most);
        let half = step / 2;
        // The upper 32 bits, as a fraction of 2^32.
        let fraction = (self.next_random() >> 32) as f64 / f64::from(u32::MAX);
        half + (step - half).mul_f64(fraction)
    }

    /// The generator of SplitMix64: enough to keep clients apart.
    pub(crate) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.next_wait())
    }
}

/// A random number that is not zero.
///
/// # Panics
/// If the operating system gives none, which it does not do once it has started.
pub(crate) fn random_number() -> u64 {
    getrandom::u64().expect("the operating system has random numbers").max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_within_their_jitter() {
        let policy =
            BackoffPolicy { first: Duration::from_millis(10), most: Duration::from_millis(70) };
        for seed in 0..100 {
            let waits: Vec<_> = Backoff::with_seed(policy, seed).take(6).collect();
            for (wait, step) in waits.iter().zip([10, 20, 40, 70, 70, 70]) {
                let step = Duration::from_millis(step);
                assert!((step / 2..=step).contains(wait), "{seed}: {wait:?} of {step:?}");
            }
        }
    }

    #[test]
    fn seeds_differ_and_a_reset_begins_anew() {
        let policy = BackoffPolicy::default();
        let mut one = Backoff::with_seed(policy, 1);
        assert_ne!(one.clone().next_wait(), Backoff::with_seed(policy, 2).next_wait());
        one.by_ref().take(9).for_each(drop);
        one.reset();
        assert!(one.next_wait() <= policy.first);
    }
}
