//! Client: where everything begins. It knows the server; what it makes has connections of its own.

use std::sync::Arc;

use crate::admin::Admin;
use crate::config::ClientConfig;
use crate::error::Result;
use crate::link::Link;
use crate::producer::ProducerBuilder;

/// A client of one server. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
    /// For control calls; producers and consumers have links of their own, so that nothing waits
    /// behind their bytes.
    link: Arc<Link>,
}

impl Client {
    /// Connects to the server at `host:port`.
    ///
    /// # Errors
    /// As [`Client::with`].
    pub async fn connect(address: impl Into<String>) -> Result<Client> {
        Client::with(ClientConfig::at(address)).await
    }

    /// Connects as configured; tries until the server answers or `request_timeout` has passed.
    ///
    /// # Errors
    /// `Unreachable`, `TimedOut`, `Refused`; `InvalidArgument` for a config that makes no sense.
    pub async fn with(config: ClientConfig) -> Result<Client> {
        config.check()?;
        let config = Arc::new(config);
        let link = Arc::new(Link::new(Arc::clone(&config)));
        link.connection(link.deadline()).await?;
        Ok(Client { config, link })
    }

    /// How it was configured.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Topics, groups and offsets: to look at and to change.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.link))
    }

    /// A producer, to be configured and built.
    #[must_use]
    pub fn producer(&self) -> ProducerBuilder {
        ProducerBuilder::new(self.clone())
    }

    /// Which run of the server was connected to last; it changes when the server is restarted.
    #[must_use]
    pub fn boot_id(&self) -> Option<u64> {
        self.link.boot_id()
    }

    /// A link for control calls, shared by all that this client has made.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// A link of its own, connected when it is first used.
    pub(crate) fn new_link(&self) -> Arc<Link> {
        Arc::new(Link::new(Arc::clone(&self.config)))
    }
}
