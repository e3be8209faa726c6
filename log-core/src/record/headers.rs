//! Reserved record-header names: kept for what the log itself will read in a record's headers.
//!
//! This release stores them as any other header and acts on none. All it does is to note in a
//! batch's attributes whether some record in it has [`EXPIRES_AT`], for those who will.
//! Values are text, so that any tool can read them. Names under [`RESERVED`] are the log's; those
//! below are the ones that a producer may set.

/// What every reserved name begins with.
pub const RESERVED: &str = "log.";

/// An id of the producer's choice: appending the same one twice can be told.
pub const MESSAGE_ID: &str = "log.message-id";

/// From when on nobody wants the record: milliseconds since 1970, in decimal.
pub const EXPIRES_AT: &str = "log.expires-at";

/// Not before when the record is to be delivered: milliseconds since 1970, in decimal.
pub const DELIVER_AT: &str = "log.deliver-at";
