//! Topics: those that are there, by name and by id.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::topic::TopicShared;
use crate::name::TopicName;

/// The topics of a store. Both maps hold the same ones.
#[derive(Debug, Default)]
pub(super) struct Topics {
    by_name: BTreeMap<TopicName, Arc<TopicShared>>,
    by_id: HashMap<u128, Arc<TopicShared>>,
}

impl Topics {
    pub(super) fn insert(&mut self, topic: Arc<TopicShared>) {
        self.by_id.insert(topic.id, Arc::clone(&topic));
        if let Some(before) = self.by_name.insert(topic.name.clone(), Arc::clone(&topic))
            && before.id != topic.id
        {
            self.by_id.remove(&before.id);
        }
    }

    pub(super) fn remove(&mut self, name: &TopicName) {
        if let Some(topic) = self.by_name.remove(name) {
            self.by_id.remove(&topic.id);
        }
    }

    pub(super) fn named(&self, name: &TopicName) -> Option<&Arc<TopicShared>> {
        self.by_name.get(name)
    }

    pub(super) fn with_id(&self, id: u128) -> Option<&Arc<TopicShared>> {
        self.by_id.get(&id)
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<TopicShared>> {
        self.by_name.values()
    }
}
