//! World: a server with topics, and a proxy in front of it that can cut connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use log_client::{Client, ClientConfig, Consumer, ConsumerRecord};
use log_core::{Record, TopicConfig, TopicName};
use log_server::{Server, ServerConfig};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    dir: TempDir,
    server: Option<Server>,
    address: SocketAddr,
}

impl World {
    pub(crate) fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::bind(ServerConfig::local(dir.path())).unwrap();
        let address = server.address();
        World { dir, server: Some(server), address }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn topic(&self, name: &str, partitions: u32) {
        self.topic_with(name, partitions, TopicConfig::default());
    }

    pub(crate) fn topic_with(&self, name: &str, partitions: u32, config: TopicConfig) {
        let name = TopicName::parse(name).unwrap();
        self.server().store().create_topic(&name, partitions, config).unwrap();
    }

    /// Appends so many records to a partition, as one batch.
    pub(crate) fn append(&self, topic: &str, partition: u32, count: usize) {
        let topic = self.server().store().topic(&TopicName::parse(topic).unwrap()).unwrap();
        let records = vec![Record::new(b"payload").with_key(b"key"); count];
        topic.partition(partition).unwrap().append(&records).unwrap();
    }

    pub(crate) fn trim(&self, topic: &str, partition: u32, to: u64) {
        let topic = self.server().store().topic(&TopicName::parse(topic).unwrap()).unwrap();
        topic.partition(partition).unwrap().trim(to).unwrap();
    }

    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig::at(self.address.to_string())
    }

    pub(crate) async fn client(&self) -> Client {
        Client::with(self.config()).await.unwrap()
    }

    /// Stops the server and starts it again, on the same port.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start();
    }

    pub(crate) fn stop(&mut self) {
        self.server.take().unwrap().stop(Duration::from_secs(10)).unwrap();
    }

    pub(crate) fn start(&mut self) {
        let listen = self.address;
        let config = ServerConfig { listen, ..ServerConfig::local(self.dir.path()) };
        self.server = Some(Server::bind(config).unwrap());
    }
}

/// Stands between clients and the server.
pub(crate) struct Proxy {
    address: SocketAddr,
    cut: tokio::sync::watch::Sender<u64>,
    _task: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn before(world: &World) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, cuts) = tokio::sync::watch::channel(0);
        let target = world.address;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut pipes = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                pipes.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cuts.changed() => {}
                    }
                });
            }
        });
        Proxy { address, cut, _task: task }
    }

    pub(crate) fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address.to_string()).await.unwrap()
    }
}

pub(crate) async fn next(consumer: &mut Consumer) -> ConsumerRecord {
    timeout(PATIENCE, consumer.next()).await.expect("a record in time").unwrap().unwrap()
}

/// The offsets of the next records, all of one partition.
pub(crate) async fn offsets(consumer: &mut Consumer, count: usize) -> Vec<u64> {
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.push(next(consumer).await.offset);
    }
    seen
}

/// The offsets of the next records, by partition.
pub(crate) async fn by_partition(consumer: &mut Consumer, count: usize) -> BTreeMap<u32, Vec<u64>> {
    let mut seen: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for _ in 0..count {
        let record = next(consumer).await;
        seen.entry(record.partition).or_default().push(record.offset);
    }
    seen
}

/// Nothing more comes for a while.
pub(crate) async fn nothing_more(consumer: &mut Consumer) {
    let more = timeout(Duration::from_millis(300), consumer.next()).await;
    assert!(more.is_err(), "{more:?}");
}

/// Waits until this holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(timeout(PATIENCE, waiting).await.is_ok(), "{what}");
}
