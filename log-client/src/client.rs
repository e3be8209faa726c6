//! Client: where everything begins. It knows the server; what it makes has connections of its own.

use std::sync::Arc;

use crate::admin::Admin;
use crate::config::ClientConfig;
use crate::error::Result;
use crate::link::Link;
use crate::producer::ProducerBuilder;

/// A client of one server. Clones share it.
///
/// # Examples
///
/// How the server is reached, and how long that is tried, is in a [`ClientConfig`]; what the client
/// makes has it, too:
///
/// ```
/// use std::time::Duration;
///
/// use log_client::{Client, ClientConfig};
///
/// # let dir = tempfile::tempdir()?;
/// # let server = log_server::Server::bind(log_server::ServerConfig::local(dir.path()))?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// # let address = server.address().to_string();
/// let config = ClientConfig {
///     client_id: "billing".to_owned(),
///     request_timeout: Duration::from_secs(5),
///     ..ClientConfig::at(address)
/// };
/// let client = Client::with(config).await?;
/// assert!(client.boot_id().is_some());
///
/// // Each has a connection of its own, but the admin, which uses the client's.
/// let admin = client.admin();
/// let producer = client.producer().linger(Duration::from_millis(2)).build()?;
/// assert!(admin.list_topics(false).await?.is_empty());
/// # producer.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A server that can't be reached is told after `request_timeout`; a wrong setting at once:
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # runtime.block_on(async {
/// use std::time::Duration;
///
/// use log_client::{Client, ClientConfig, Error};
///
/// // Nobody listens there.
/// let nobody = ClientConfig {
///     request_timeout: Duration::from_millis(50),
///     ..ClientConfig::at("127.0.0.1:1")
/// };
/// let failed = Client::with(nobody.clone()).await.unwrap_err();
/// assert!(failed.is_retriable(), "{failed}");
///
/// let endless = ClientConfig { keepalive: Duration::MAX, ..nobody };
/// let refused = Client::with(endless).await.unwrap_err();
/// assert!(matches!(refused, Error::InvalidArgument { .. }));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
