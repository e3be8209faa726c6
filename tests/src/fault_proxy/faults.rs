//! Faults: what can happen to the bytes of a connection, each way.

use std::time::Duration;

use crate::Dice;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Requests = 0,
    /// From the server to the client.
    Replies = 1,
}

/// What happens to bytes on their way. Numbers of bytes and frames count from the beginning of the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// They come so much later.
    Delay(Duration),
    /// At most so many pass in a second.
    Throttle {
        /// How many.
        bytes_per_second: u32,
    },
    /// So many pass, mostly up to the middle of a frame; then the connection is cut, both ways.
    Cut {
        /// How many.
        after: u64,
    },
    /// So many pass; all others are lost, and the connection stays open, as if a cable was out.
    BlackHole {
        /// How many.
        after: u64,
    },
    /// None is taken; who sends has to wait.
    Pause,
    /// The frame with this number, from 0, comes twice.
    Duplicate {
        /// The number.
        frame: u64,
    },
}

/// The faults of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// On the way to the server.
    pub requests: Fault,
    /// On the way back.
    pub replies: Fault,
}

impl Faults {
    /// None.
    pub const NONE: Faults = Faults { requests: Fault::None, replies: Fault::None };

    /// This one on the way to the server.
    #[must_use]
    pub fn requests(requests: Fault) -> Faults {
        Faults { requests, ..Faults::NONE }
    }

    /// This one on the way back.
    #[must_use]
    pub fn replies(replies: Fault) -> Faults {
        Faults { replies, ..Faults::NONE }
    }

    /// What the seed has for the connection with this number: none for half of them, so that
    /// things get on.
    #[must_use]
    pub fn of_seed(seed: u64, connection: u64) -> Faults {
        let mut dice = Dice::new(Dice::new(seed).next() ^ connection);
        if dice.below(2) == 0 {
            return Faults::NONE;
        }
        if dice.below(2) == 0 {
            Faults::requests(fault(&mut dice))
        } else {
            Faults::replies(fault(&mut dice))
        }
    }

    pub(crate) fn of(self, way: Way) -> Fault {
        match way {
            Way::Requests => self.requests,
            Way::Replies => self.replies,
        }
    }
}

fn fault(dice: &mut Dice) -> Fault {
    // Short ones as often as long ones.
    let most = 1 << dice.below(17);
    let after = dice.below(most);
    match dice.below(5) {
        0 => Fault::Delay(Duration::from_millis(1 + dice.below(20))),
        1 => Fault::Throttle { bytes_per_second: 1 << (14 + dice.below(8)) },
        2 => Fault::Cut { after },
        3 => Fault::BlackHole { after },
        _ => Fault::Duplicate { frame: dice.below(20) },
    }
}
