//! The peer redb: a B-tree with transactions; the key is the place of the message.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::Peer;
use crate::Outcome;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

struct Redb {
    database: Database,
    next: AtomicU64,
}

pub(super) fn open(dir: &Path) -> Outcome<Box<dyn Peer>> {
    let database = Database::create(dir.join("log.redb"))?;
    Ok(Box::new(Redb { database, next: AtomicU64::new(0) }))
}

impl Redb {
    fn insert(&self, messages: &[&[u8]], durability: Durability) -> Outcome<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        {
            let mut table = transaction.open_table(LOG)?;
            for message in messages {
                table.insert(self.next.fetch_add(1, Ordering::Relaxed), *message)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

impl Peer for Redb {
    /// With no durability at all: what it appends stays in the process.
    fn append(&mut self, messages: &[&[u8]]) -> Outcome<()> {
        self.insert(messages, Durability::None)
    }

    fn append_durably(&self, _: u64, message: &[u8]) -> Outcome<()> {
        self.insert(&[message], Durability::Immediate)
    }

    fn scan(&self, visit: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let table = self.database.begin_read()?.open_table(LOG)?;
        for entry in table.iter()? {
            visit(entry?.1.value());
        }
        Ok(())
    }

    fn read_each(&self, places: &[u64], visit: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let table = self.database.begin_read()?.open_table(LOG)?;
        for place in places {
            visit(table.get(place)?.ok_or("it is not there")?.value());
        }
        Ok(())
    }
}
