//! The client against a server that does what a test tells it to, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod calls;
mod consume;
mod fake_log;
mod produce;
mod real;
mod server;

use std::time::Duration;

use log_client::{BackoffPolicy, Client, ClientConfig};

use crate::server::ScriptedServer;

/// A client that does not wait long for anything.
async fn hasty_client(server: &ScriptedServer) -> Client {
    let millis = Duration::from_millis;
    let config = ClientConfig {
        request_timeout: millis(500),
        backoff: BackoffPolicy { first: millis(1), most: millis(10) },
        ..ClientConfig::at(server.address.to_string())
    };
    Client::with(config).await.unwrap()
}
