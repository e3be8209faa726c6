//! ClientConfig: how a client reaches its server, and how long it tries.

use std::time::Duration;

use log_core::protocol::DEFAULT_PORT;
use log_core::protocol::hello::CLIENT_ID_MAX_BYTES;

use crate::backoff::BackoffPolicy;
use crate::error::{Error, Result};

/// The longest that any setting may be: deadlines are made of it, and clocks end somewhere.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// How a client reaches its server, and how long it tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// Where the server listens: `host:port`.
    pub address: String,
    /// A name for the server's logs and metrics.
    pub client_id: String,
    /// How long one attempt to connect may take, the hello included.
    pub connect_timeout: Duration,
    /// How long a call may take, all its retries included.
    pub request_timeout: Duration,
    /// A connection that was silent for so long is asked for a sign of life; one that then is
    /// silent for as long again is given up.
    pub keepalive: Duration,
    /// How long to wait before the next attempt at what failed.
    pub backoff: BackoffPolicy,
    /// The most bytes of a frame that are taken from the server.
    pub frame_max_bytes: u32,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            address: format!("127.0.0.1:{DEFAULT_PORT}"),
            client_id: "log-client".to_owned(),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(10),
            backoff: BackoffPolicy::default(),
            frame_max_bytes: 320 * 1024 * 1024,
        }
    }
}

impl ClientConfig {
    /// The defaults, for the server at `host:port`.
    #[must_use]
    pub fn at(address: impl Into<String>) -> ClientConfig {
        ClientConfig { address: address.into(), ..ClientConfig::default() }
    }

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the setting.
    pub fn check(&self) -> Result<()> {
        let timeouts = [self.connect_timeout, self.request_timeout, self.keepalive];
        let wrong = if self.client_id.len() > CLIENT_ID_MAX_BYTES {
            "client_id is longer than 200 bytes"
        } else if timeouts.iter().any(Duration::is_zero) {
            "connect_timeout, request_timeout and keepalive must be longer than zero"
        } else if self.backoff.first.is_zero() || self.backoff.most < self.backoff.first {
            "backoff.first must be longer than zero, and backoff.most at least as long"
        } else if timeouts.into_iter().chain([self.backoff.most]).any(|one| one > DURATION_MAX) {
            "connect_timeout, request_timeout, keepalive and backoff.most are a year at most"
        } else {
            return Ok(());
        };
        Err(Error::invalid(wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        assert!(ClientConfig::default().check().is_ok());
        let long = ClientConfig { client_id: "x".repeat(201), ..ClientConfig::default() };
        assert!(matches!(long.check(), Err(Error::InvalidArgument { .. })));
        let hasty = ClientConfig { request_timeout: Duration::ZERO, ..ClientConfig::default() };
        assert!(matches!(hasty.check(), Err(Error::InvalidArgument { .. })));
        let endless = ClientConfig { keepalive: Duration::MAX, ..ClientConfig::default() };
        assert!(matches!(endless.check(), Err(Error::InvalidArgument { .. })));
    }
}
