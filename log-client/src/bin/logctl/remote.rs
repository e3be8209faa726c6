//! Remote: the server that a verb talks to, reached when it is first needed.

use std::cell::OnceCell;
use std::future::Future;
use std::time::Duration;

use log_client::{Admin, Client, ClientConfig};
use log_core::protocol::DEFAULT_PORT;
use tokio::runtime::{Builder, Runtime};

use crate::failure::{Failure, Result};

/// Somebody waits at a keyboard.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A server, with a thread to talk to it: that of the verb.
pub(crate) struct Remote {
    runtime: Runtime,
    address: String,
    client: OnceCell<Client>,
}

impl Remote {
    /// The server at this address, or at the one where it is if nothing else is said.
    pub(crate) fn new(address: Option<String>) -> Result<Remote> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(Failure::Output)?;
        let address = address.unwrap_or_else(|| format!("127.0.0.1:{DEFAULT_PORT}"));
        Ok(Remote { runtime, address, client: OnceCell::new() })
    }

    pub(crate) fn client(&self) -> Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut config = ClientConfig::at(self.address.clone());
        "logctl".clone_into(&mut config.client_id);
        config.connect_timeout = CONNECT_TIMEOUT;
        let client = self.runtime.block_on(Client::with(config))?;
        Ok(self.client.get_or_init(|| client))
    }

    pub(crate) fn admin(&self) -> Result<Admin> {
        Ok(self.client()?.admin())
    }

    /// Waits for an answer.
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = log_client::Result<T>>) -> Result<T> {
        Ok(self.runtime.block_on(answer)?)
    }

    /// Runs what takes longer.
    pub(crate) fn run<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(work)
    }
}
