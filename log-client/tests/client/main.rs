//! The client against a server that does what a test tells it to, over real sockets.

mod calls;
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
