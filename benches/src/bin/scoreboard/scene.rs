//! Scene: where a run happens, and how large it is.

use std::fs;
use std::path::{Path, PathBuf};

use benches::{Outcome, peers, servers};
use tempfile::TempDir;

use crate::args::Args;

/// How many times each side is measured.
pub(crate) const ROUNDS: usize = 3;

pub(crate) struct Scene {
    /// Removed with all that is in it when the run ends.
    base: TempDir,
    quick: bool,
    /// The peers that take part.
    pub(crate) peers: &'static [peers::Entry],
    /// The same of servers: those that are installed.
    pub(crate) servers: Vec<&'static servers::Entry>,
}

impl Scene {
    pub(crate) fn new(args: &Args) -> Outcome<Scene> {
        let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("target"));
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        // Absolute: children may run elsewhere.
        let base =
            tempfile::Builder::new().prefix("scoreboard-").tempdir_in(dir.canonicalize()?)?;
        let peers = if args.peers { peers::ALL } else { &[] };
        let servers = if args.peers { servers::PEERS } else { &[] };
        let servers = servers.iter().filter(|server| server.installed().is_some()).collect();
        Ok(Scene { base, quick: args.quick, peers, servers })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.base.path()
    }

    /// An empty directory, for as long as the result lives.
    pub(crate) fn fresh_dir(&self) -> Outcome<TempDir> {
        Ok(tempfile::tempdir_in(self.dir())?)
    }

    /// Whether it is for a look only.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// That many, or a tenth of them.
    pub(crate) fn sized(&self, count: u64) -> u64 {
        if self.quick { count / 10 } else { count }
    }
}
