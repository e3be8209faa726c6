//! Target: what a verb works on: a data directory at rest, or a server.

use std::path::PathBuf;

use log_core::config::TopicConfig;
use log_core::name::TopicName;
use log_core::offset::Offset;
use log_core::partition::Partition;
use log_core::protocol::topics::PartitionEndsV1;
use log_core::store::Topic;

use crate::directory::{Directory, topic};
use crate::failure::{Failure, Result};
use crate::remote::Remote;

/// A directory or a server.
pub(crate) enum Target {
    Directory(Directory),
    Server(Remote),
}

/// A topic, wherever it is.
pub(crate) struct TopicFacts {
    pub(crate) name: String,
    pub(crate) id: u128,
    pub(crate) config: TopicConfig,
    /// The text says why one can't be used.
    pub(crate) partitions: Vec<std::result::Result<PartitionEndsV1, String>>,
}

/// What a trim has done.
pub(crate) struct Trimmed {
    pub(crate) log_start: Offset,
    pub(crate) removed_segments: u64,
    pub(crate) removed_bytes: u64,
}

impl Target {
    pub(crate) fn new(data: Option<PathBuf>, server: Option<String>) -> Result<Target> {
        match (data, server) {
            (Some(_), Some(_)) => {
                let why = "--data DIR or --server HOST:PORT: say one of the two";
                Err(Failure::Usage(why.to_owned()))
            }
            (Some(data), None) => Ok(Target::Directory(Directory::new(data))),
            (None, server) => Ok(Target::Server(Remote::new(server)?)),
        }
    }

    /// The directory, for what can only be done at rest.
    pub(crate) fn at_rest(&self, verb: &str) -> Result<&Directory> {
        match self {
            Target::Directory(directory) => Ok(directory),
            Target::Server(_) => Err(Failure::Usage(format!(
                "`{verb}` looks at the files of a directory at rest: stop the server, then say \
                 --data DIR"
            ))),
        }
    }

    /// The server, for what only one can do.
    pub(crate) fn server(&self, verb: &str) -> Result<&Remote> {
        match self {
            Target::Server(server) => Ok(server),
            Target::Directory(_) => {
                Err(Failure::Usage(format!("`{verb}` asks a server: say --server HOST:PORT")))
            }
        }
    }

    pub(crate) fn create_topic(
        &self,
        name: &TopicName,
        partitions: u32,
        config: TopicConfig,
    ) -> Result<()> {
        match self {
            Target::Directory(directory) => directory.change_or_create(|store| {
                Ok(store.create_topic(name, partitions, config).map(drop)?)
            }),
            Target::Server(server) => {
                let admin = server.admin()?;
                server.wait(admin.create_topic(name.as_str(), partitions, &config)).map(drop)
            }
        }
    }

    /// The topics, by name; the engine's own, too, if they are wanted.
    pub(crate) fn topics(&self, with_reserved: bool) -> Result<Vec<TopicFacts>> {
        match self {
            Target::Directory(directory) => {
                let store = directory.read()?;
                let topics = if with_reserved { store.all_topics() } else { store.topics() };
                Ok(topics.iter().map(TopicFacts::from).collect())
            }
            Target::Server(server) => {
                let lines = server.wait(server.admin()?.list_topics(with_reserved))?;
                lines.iter().map(|line| self.topic(&line.name)).collect()
            }
        }
    }

    pub(crate) fn topic(&self, name: &str) -> Result<TopicFacts> {
        match self {
            Target::Directory(directory) => Ok(TopicFacts::from(&topic(&directory.read()?, name)?)),
            Target::Server(server) => {
                TopicName::parse_any(name)?;
                let told = server.wait(server.admin()?.describe_topic(name))?;
                let slots = told.partitions.into_iter();
                Ok(TopicFacts {
                    name: told.name,
                    id: told.id,
                    config: told.config,
                    partitions: slots.map(|slot| slot.map_err(|why| why.message)).collect(),
                })
            }
        }
    }

    /// Gives a topic the settings that `change` makes of those that it has.
    pub(crate) fn alter_topic(
        &self,
        name: &TopicName,
        change: impl FnOnce(TopicConfig) -> TopicConfig,
    ) -> Result<()> {
        match self {
            Target::Directory(directory) => directory.change(|store| {
                let config = change(store.topic(name)?.config());
                Ok(store.alter_topic(name, config)?)
            }),
            Target::Server(server) => {
                let admin = server.admin()?;
                let config = change(server.wait(admin.describe_topic(name.as_str()))?.config);
                config.check()?;
                server.wait(admin.alter_topic(name.as_str(), &config)).map(drop)
            }
        }
    }

    pub(crate) fn delete_topic(&self, name: &TopicName) -> Result<()> {
        match self {
            Target::Directory(directory) => directory.change(|store| Ok(store.delete_topic(name)?)),
            Target::Server(server) => server.wait(server.admin()?.delete_topic(name.as_str())),
        }
    }

    pub(crate) fn add_partitions(&self, name: &TopicName, total: u32) -> Result<()> {
        match self {
            Target::Directory(directory) => {
                directory.change(|store| Ok(store.add_partitions(name, total)?))
            }
            Target::Server(server) => {
                server.wait(server.admin()?.add_partitions(name.as_str(), total)).map(drop)
            }
        }
    }

    pub(crate) fn trim(&self, name: &TopicName, number: u32, offset: Offset) -> Result<Trimmed> {
        match self {
            Target::Directory(directory) => directory.change(|store| {
                let partition = store.topic(name)?.partition(number)?;
                let removed = partition.trim(offset)?;
                Ok(Trimmed {
                    log_start: partition.ends().log_start,
                    removed_segments: removed.len() as u64,
                    removed_bytes: removed.iter().map(|segment| segment.bytes).sum(),
                })
            }),
            Target::Server(server) => {
                let (admin, topic) = (server.admin()?, name.as_str());
                let before = server.wait(admin.describe_topic(topic))?.partitions;
                let before =
                    usize::try_from(number).ok().and_then(|at| before.get(at)?.clone().ok());
                let after = server.wait(admin.trim_partition(topic, number, offset))?;
                let before = before.unwrap_or(after);
                Ok(Trimmed {
                    log_start: after.log_start,
                    removed_segments: before.segments.saturating_sub(after.segments).into(),
                    removed_bytes: before.bytes.saturating_sub(after.bytes),
                })
            }
        }
    }
}

impl From<&Topic> for TopicFacts {
    fn from(topic: &Topic) -> TopicFacts {
        let slots = topic.partitions().into_iter();
        let facts = slots.map(|slot| slot.map(|partition| ends_of(&partition)));
        TopicFacts {
            name: topic.name().to_string(),
            id: topic.id(),
            config: topic.config(),
            partitions: facts.map(|slot| slot.map_err(|error| error.to_string())).collect(),
        }
    }
}

fn ends_of(partition: &Partition) -> PartitionEndsV1 {
    let ends = partition.ends();
    PartitionEndsV1 {
        log_start: ends.log_start,
        durable_end: ends.durable_end,
        readable_end: partition.readable_end(),
        end: ends.end,
        bytes: partition.used_bytes(),
        segments: u32::try_from(partition.segment_count()).unwrap_or(u32::MAX),
    }
}
