//! Catalog: made anew by `repair` from the topics' directories, where it is lost.

use std::path::Path;
use std::sync::Arc;

use log_core::disk::{Disk, OsDisk};
use log_core::store::{Rebuild, RebuiltCatalog, Store};
use serde::Serialize;

use crate::failure::{Exit, Result};
use crate::output::{Output, count};

#[derive(Debug, Serialize)]
struct Topic<'a> {
    action: &'static str,
    done: bool,
    topic: &'a str,
    id: String,
    partitions: u32,
}

#[derive(Debug, Serialize)]
struct Unclear<'a> {
    action: &'static str,
    directory: &'a Path,
}

/// Rebuilds the catalog if it can't be read; `None` if it can, and there is nothing to do.
pub(crate) fn rebuild(dir: &Path, how: Rebuild, output: &mut Output) -> Result<Option<Exit>> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let Some(rebuilt) = Store::rebuild_catalog(dir, &disk, how)? else { return Ok(None) };
    tell(&rebuilt, output)?;
    let done = rebuilt.applied || rebuilt.topics.is_empty() && rebuilt.unclear.is_empty();
    Ok(Some(if done { Exit::Done } else { Exit::Found }))
}

fn tell(rebuilt: &RebuiltCatalog, output: &mut Output) -> Result<()> {
    let done = rebuilt.applied;
    for (name, id, partitions) in &rebuilt.topics {
        let topic = Topic {
            action: "rebuild-catalog",
            done,
            topic: name.as_str(),
            id: format!("{id:032x}"),
            partitions: *partitions,
        };
        let held = count(u64::from(*partitions), "partition");
        output
            .fact(&topic, &format!("catalog: {name} ({}), {held}, default settings", topic.id))?;
    }
    for directory in &rebuilt.unclear {
        let unclear = Unclear { action: "decide", directory };
        let shown = directory.display();
        output.fact(
            &unclear,
            &format!("unclear: {shown}: move it away if it should not come back"),
        )?;
    }
    if output.is_json() {
        return Ok(());
    }
    output.line(match (done, rebuilt.unclear.is_empty()) {
        (true, _) => {
            "the catalog was made anew; the old one is catalog.damaged. Now set what the \
                      topics had: `logctl topic alter`, then `logctl check`"
        }
        (false, true) => "nothing was changed; `logctl repair --apply` makes the catalog anew",
        (false, false) => "nothing was changed: first decide about the unclear directories",
    })
}
