//! GroupLimits: every setting and every limit of consumer groups, with its default.

use std::time::Duration;

use crate::config::{LONGEST, SHORTEST, within, within_time};
use crate::error::ServerError;

/// What groups may be and take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupLimits {
    /// The most groups, those that have only committed something counted.
    pub groups_max: usize,
    /// The most members of a group.
    pub members_max: usize,
    /// The most topics of a member.
    pub topics_max: usize,
    /// The most partitions of a member's topics.
    pub partitions_max: usize,
    /// How long the first member of an empty group waits for others before anything is dealt.
    pub join_window: Duration,
    /// The shortest session timeout; a shorter one is lengthened.
    pub session_timeout_min: Duration,
    /// The longest session timeout; a longer one is shortened.
    pub session_timeout_max: Duration,
    /// How long an owner counts as alive after a restart of the server, which does not know the
    /// session timeouts of before. So a longer one than this is shortened, too: else a member might
    /// still hand records over that others have. Make it
    /// shorter only while no group has members.
    pub restart_timeout: Duration,
    /// The longest that draining may take; a longer one is shortened.
    pub drain_timeout_max: Duration,
    /// The longest that partitions are kept for the next run of a member.
    pub keep_max: Duration,
    /// How long until what could not be written is tried again.
    pub retry_after: Duration,
}

impl GroupLimits {
    /// Refuses limits that make no sense.
    ///
    /// # Errors
    /// `IllegalSetting`, naming the setting and what it may be.
    pub fn check(&self) -> Result<(), ServerError> {
        for (setting, count) in [
            ("groups_max", self.groups_max),
            ("members_max", self.members_max),
            ("group_topics_max", self.topics_max),
            ("group_partitions_max", self.partitions_max),
        ] {
            within(setting, count, 1, 1_000_000)?;
        }
        let least = self.session_timeout_min;
        for (setting, duration, min) in [
            ("join_window", self.join_window, Duration::ZERO),
            ("session_timeout_min", least, SHORTEST),
            ("session_timeout_max", self.session_timeout_max, least),
            // No session is longer than this.
            ("restart_timeout", self.restart_timeout, least),
            ("drain_timeout_max", self.drain_timeout_max, SHORTEST),
            ("keep_max", self.keep_max, Duration::ZERO),
            ("retry_after", self.retry_after, SHORTEST),
        ] {
            within_time(setting, duration, min, LONGEST)?;
        }
        Ok(())
    }

    /// The session timeout of a member that wants this one.
    #[must_use]
    pub fn session_timeout(&self, wanted: Duration) -> Duration {
        let most = self.session_timeout_max.min(self.restart_timeout);
        wanted.max(self.session_timeout_min).min(most)
    }
}

impl Default for GroupLimits {
    fn default() -> GroupLimits {
        GroupLimits {
            groups_max: 10_000,
            members_max: 1_000,
            topics_max: 1_000,
            partitions_max: 20_000,
            join_window: Duration::from_millis(500),
            session_timeout_min: Duration::from_millis(100),
            session_timeout_max: Duration::from_secs(300),
            restart_timeout: Duration::from_secs(10),
            drain_timeout_max: Duration::from_secs(3600),
            keep_max: Duration::from_secs(3600),
            retry_after: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_legal_and_nonsense_is_refused_by_name() {
        let sound = GroupLimits::default();
        sound.check().unwrap();
        let second = Duration::from_secs(1);
        let bad = [
            ("restart_timeout", GroupLimits { restart_timeout: Duration::ZERO, ..sound.clone() }),
            ("members_max", GroupLimits { members_max: 0, ..sound.clone() }),
            ("retry_after", GroupLimits { retry_after: Duration::ZERO, ..sound.clone() }),
            (
                "session_timeout_max",
                GroupLimits {
                    session_timeout_min: 2 * second,
                    session_timeout_max: second,
                    ..sound
                },
            ),
        ];
        for (setting, limits) in bad {
            let refused = limits.check().unwrap_err().to_string();
            assert!(refused.contains(setting), "{refused}");
        }
    }

    #[test]
    fn nobody_has_a_longer_session_than_a_restarted_server_waits() {
        let limits = GroupLimits::default();
        let hour = Duration::from_secs(3600);
        assert_eq!(limits.session_timeout(hour), limits.restart_timeout);
        assert_eq!(limits.session_timeout(Duration::ZERO), limits.session_timeout_min);
        let short = GroupLimits { restart_timeout: Duration::from_millis(1), ..limits };
        assert_eq!(short.session_timeout(hour), short.restart_timeout);
    }
}
