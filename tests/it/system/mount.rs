//! File systems made for a test, mounted below a temporary directory, always unmounted again.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{has, pause, quiet};

/// A kind of file system that can be made here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tmpfs,
    Ext4,
    /// Without a journal: a device that fails to write stops nothing else.
    Ext4Plain,
    Xfs,
    Btrfs,
}

/// A mounted file system. Its image, if it has one, lives on a file system in memory: what is not
/// synced inside is lost by [`Cutter::cut`] all the same.
pub(crate) struct Mounted {
    /// Where it is mounted.
    pub(crate) dir: PathBuf,
    /// What it is.
    pub(crate) kind: Kind,
    image: PathBuf,
    options: String,
    mounted: bool,
    // Dropped last: it holds the mount point.
    _home: tempfile::TempDir,
}

/// Something that waits to cut the power of a file system.
pub(crate) struct Cutter(Child);

impl Kind {
    /// What keeps this kind from being made here.
    pub(crate) fn obstacle(self) -> Option<&'static str> {
        if !quiet(Command::new("sh").args(["-c", "test $(id -u) -eq 0"])) {
            return Some("mounting takes root");
        }
        match self {
            Kind::Ext4 | Kind::Ext4Plain if !has("mkfs.ext4") => Some("there is no mkfs.ext4"),
            Kind::Xfs if !has("mkfs.xfs") => Some("there is no mkfs.xfs"),
            Kind::Btrfs if !has("mkfs.btrfs") => Some("there is no mkfs.btrfs"),
            _ => None,
        }
    }

    /// The least that its tools make.
    fn least_mib(self) -> u64 {
        match self {
            Kind::Tmpfs => 1,
            Kind::Ext4 | Kind::Ext4Plain => 8,
            Kind::Xfs => 300,
            Kind::Btrfs => 112,
        }
    }
}

impl Mounted {
    /// Makes and mounts one of about this size, or says what keeps it from being made.
    pub(crate) fn new(kind: Kind, mib: u64) -> Result<Mounted, String> {
        Mounted::with(kind, mib, "", None)
    }

    /// The same with mount options, and with the image in a directory of the caller's choice.
    pub(crate) fn with(
        kind: Kind,
        mib: u64,
        options: &str,
        image_dir: Option<&Path>,
    ) -> Result<Mounted, String> {
        if let Some(obstacle) = kind.obstacle() {
            return Err(obstacle.to_owned());
        }
        let in_memory = Path::new("/dev/shm");
        let home =
            if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
        let home = home.map_err(|error| error.to_string())?;
        let dir = home.path().join("mnt");
        std::fs::create_dir(&dir).map_err(|error| error.to_string())?;
        let image = image_dir.unwrap_or(home.path()).join("image");
        let options = if kind == Kind::Tmpfs { format!("size={mib}m") } else { options.to_owned() };
        let mut made = Mounted { dir, kind, image, options, mounted: false, _home: home };
        if kind != Kind::Tmpfs {
            made.format(mib.max(kind.least_mib()))?;
        }
        made.mount()?;
        Ok(made)
    }

    fn format(&self, mib: u64) -> Result<(), String> {
        let program = match self.kind {
            Kind::Ext4 | Kind::Ext4Plain => "mkfs.ext4",
            Kind::Xfs => "mkfs.xfs",
            Kind::Btrfs => "mkfs.btrfs",
            Kind::Tmpfs => unreachable!("it has no image"),
        };
        let mut sparse = Command::new("truncate");
        let sized = quiet(sparse.arg("-s").arg(format!("{mib}M")).arg(&self.image));
        let mut make = Command::new(program);
        if self.kind == Kind::Ext4Plain {
            make.args(["-O", "^has_journal"]);
        }
        let made = sized && quiet(make.arg("-q").arg(&self.image));
        if made { Ok(()) } else { Err(format!("{program} fails for {mib} MiB")) }
    }

    /// Mounts it, again.
    pub(crate) fn mount(&mut self) -> Result<(), String> {
        assert!(!self.mounted, "it is mounted");
        let mut mount = Command::new("mount");
        if self.kind == Kind::Tmpfs {
            mount.args(["-t", "tmpfs", "-o", &self.options, "tmpfs"]).arg(&self.dir);
        } else {
            let options = format!("loop,{}", self.options);
            mount.args(["-o", options.trim_end_matches(',')]).arg(&self.image).arg(&self.dir);
        }
        if !quiet(&mut mount) {
            return Err(format!("mounting {:?} fails", self.kind));
        }
        self.mounted = true;
        Ok(())
    }

    /// Unmounts it: nobody may use it any more.
    pub(crate) fn unmount(&mut self) {
        for _ in 0..200 {
            if quiet(Command::new("umount").arg(&self.dir)) {
                self.mounted = false;
                return;
            }
            pause(Duration::from_millis(10));
        }
        panic!("{} can't be unmounted: something still uses it", self.dir.display());
    }

    /// Unmounts and mounts: what the kernel kept in memory is gone.
    pub(crate) fn remount(&mut self) {
        self.unmount();
        self.mount().expect("it was mounted before");
    }

    /// Something that cuts its power when it is told to.
    pub(crate) fn cutter(&self) -> Cutter {
        // EXT4_IOC_SHUTDOWN, without flushing the journal.
        const PROGRAM: &str = "open(my $f, '<', $ARGV[0]) or die; $| = 1; print 'r'; \
             <STDIN>; my $how = pack('L', 2); ioctl($f, 0x8004587d, $how) or die $!; print 'd';";
        let mut perl = Command::new("perl");
        perl.args(["-e", PROGRAM]).arg(&self.dir);
        let child = perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut cutter = Cutter(child.expect("perl starts"));
        assert_eq!(cutter.heard(), b'r', "it is ready");
        cutter
    }
}

impl Cutter {
    /// Cuts: from now on nothing reaches the disk, and what was not synced is lost.
    pub(crate) fn cut(mut self) {
        self.0.stdin.take().expect("it is piped").write_all(b"\n").expect("it listens");
        assert_eq!(self.heard(), b'd', "the file system can be shut down");
        self.0.wait().expect("it ends");
    }

    fn heard(&mut self) -> u8 {
        let mut byte = [0];
        let read = self.0.stdout.as_mut().expect("it is piped").read_exact(&mut byte);
        if read.is_ok() { byte[0] } else { 0 }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted && !quiet(Command::new("umount").arg(&self.dir)) {
            // Whatever still uses it, nothing of it stays behind.
            quiet(Command::new("umount").arg("-l").arg(&self.dir));
        }
    }
}
