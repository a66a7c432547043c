//! The directory of a snapshot: who may write there, and how a file is
//! replaced so that there always is a whole one.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The snapshot.
pub const FILE: &str = "hapax.snapshot";
/// The one that is being written.
const TEMPORARY: &str = "hapax.snapshot.tmp";
/// Locked by the process that may write: the system lets go of it whichever
/// way a process ends.
const LOCK: &str = "hapax.lock";
/// Files that could not be read are kept, the newest ones.
const ASIDE_MAX: usize = 3;

/// Why the directory is of no use, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It cannot be made.
    #[error(
        "state.dir {directory} is not there and cannot be made ({source}): make it, mount the volume, or correct --state-dir"
    )]
    Make {
        /// The directory.
        directory: String,
        /// What happened.
        source: io::Error,
    },
    /// It is there, and nothing can be written to it.
    #[error(
        "state.dir {directory} cannot be written to ({source}): give the user that runs hapax the right to write there, or correct --state-dir"
    )]
    Write {
        /// The directory.
        directory: String,
        /// What happened.
        source: io::Error,
    },
}

/// Whether snapshots could be written to a directory. Nothing stays there of
/// the attempt; a directory that is missing is not made.
///
/// # Errors
///
/// Why not.
pub fn probe(directory: &Path) -> Result<(), DirectoryError> {
    let there = |path: &&Path| path.exists() || path.as_os_str().is_empty();
    let nearest = directory.ancestors().find(there).unwrap_or(directory);
    let missing = nearest != directory;
    // An empty path is where we are.
    let at = Path::new(".").join(nearest);
    let trial = at.join(format!(".hapax-check-{}", std::process::id()));
    let tried = File::create(&trial).and_then(|_| fs::remove_file(&trial));
    let name = directory.display().to_string();
    tried.map_err(|source| refused(name, source, missing))
}

fn refused(directory: String, source: io::Error, missing: bool) -> DirectoryError {
    match missing {
        true => DirectoryError::Make { directory, source },
        false => DirectoryError::Write { directory, source },
    }
}

/// A directory that is there.
pub(super) struct Store {
    directory: PathBuf,
    /// Held while this process may write.
    lock: Option<File>,
}

impl Store {
    /// Makes the directory if need be, and tries to be the one who writes
    /// there.
    ///
    /// # Errors
    ///
    /// Where nobody could write there.
    pub(super) fn open(directory: &Path) -> Result<Self, DirectoryError> {
        let name = || directory.display().to_string();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(directory)
            .map_err(|source| refused(name(), source, !directory.exists()))?;
        let mut own = Self {
            directory: directory.to_owned(),
            lock: None,
        };
        own.acquire()
            .map_err(|source| refused(name(), source, false))?;
        probe(directory)?;
        Ok(own)
    }

    /// Where the snapshot is.
    #[must_use]
    pub(super) fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Whether this process may write.
    #[must_use]
    pub(super) fn is_ours(&self) -> bool {
        self.lock.is_some()
    }

    /// Tries to be the one who writes, unless it is already: the lock that is
    /// held must still be the one that others find. Returns whether it is.
    ///
    /// # Errors
    ///
    /// Where the lock cannot be opened.
    pub(super) fn acquire(&mut self) -> io::Result<bool> {
        let path = self.directory.join(LOCK);
        if let Some(lock) = &self.lock {
            let (ours, found) = (lock.metadata()?, fs::metadata(&path));
            let same =
                |found: &fs::Metadata| (found.dev(), found.ino()) == (ours.dev(), ours.ino());
            if found.as_ref().is_ok_and(same) {
                return Ok(true);
            }
            self.lock = None;
        }
        let lock = create(&path)?;
        match lock.try_lock() {
            Ok(()) => {
                self.lock = Some(lock);
                Ok(true)
            }
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The snapshot, as long as it has no more than `limit` bytes; `None`
    /// where there is none.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or has more.
    pub(super) fn read(&self, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.file()) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            let reason =
                format!("it has more than the {limit} bytes that sequence.maxWindows allows");
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        Ok(Some(bytes))
    }

    /// Replaces the snapshot by what `write` writes: whoever reads, and
    /// whenever the process or the machine ends, finds the old one or the new
    /// one.
    ///
    /// # Errors
    ///
    /// Where that fails; then the old one stays.
    pub(super) fn replace(
        &self,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let temporary = self.directory.join(TEMPORARY);
        let replaced = create(&temporary).and_then(|mut file| {
            file.set_len(0)?;
            write(&mut file)?;
            file.flush()?;
            file.sync_all()?;
            fs::rename(&temporary, self.file())?;
            // The name is in the directory only now.
            File::open(&self.directory)?.sync_all()
        });
        if replaced.is_err() {
            // What is left of it takes room where that may be what is missing.
            let _ = fs::remove_file(&temporary);
        }
        replaced
    }

    /// Moves a snapshot away that cannot be read; returns where to. The
    /// newest ones are kept.
    ///
    /// # Errors
    ///
    /// Where it cannot be moved.
    pub(super) fn set_aside(&self) -> io::Result<PathBuf> {
        let aside = |nth: usize| self.directory.join(format!("{FILE}.bad-{nth}"));
        for nth in (1..ASIDE_MAX).rev() {
            if aside(nth).exists() {
                fs::rename(aside(nth), aside(nth + 1))?;
            }
        }
        fs::rename(self.file(), aside(1))?;
        Ok(aside(1))
    }
}

/// A file that only its owner reads: names of topics and users are in it.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(store: &Store, text: &str) {
        let written = store.replace(|file| file.write_all(text.as_bytes()));
        written.unwrap();
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_whole_file_is_read_and_nothing_else_stays() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("made/on/demand");
        probe(&directory).unwrap();
        assert!(!directory.exists(), "only looked at");
        let store = Store::open(&directory).unwrap();
        assert_eq!(store.read(100).unwrap(), None);
        write(&store, "a longer one");
        write(&store, "two");
        assert_eq!(store.read(3).unwrap().unwrap(), b"two");
        assert!(store.read(2).is_err(), "more than is allowed");
        let failed = store.replace(|file| {
            file.write_all(b"half")?;
            Err(io::Error::from(ErrorKind::StorageFull))
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(store.read(100).unwrap().unwrap(), b"two");
        assert_eq!(names(&directory), [LOCK, FILE]);
        let mode = fs::metadata(store.file()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn one_process_writes_and_the_next_takes_over() {
        let root = tempfile::tempdir().unwrap();
        let one = Store::open(root.path()).unwrap();
        let mut two = Store::open(root.path()).unwrap();
        assert_eq!((one.is_ours(), two.is_ours()), (true, false));
        assert!(!two.acquire().unwrap());
        drop(one);
        assert!(two.acquire().unwrap());
        assert!(two.acquire().unwrap(), "and stays");
    }

    /// A volume that is taken away and comes back may be somebody else's now.
    #[test]
    fn a_lock_that_others_do_not_find_is_none() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("state");
        let mut one = Store::open(&directory).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(one.acquire().is_err());
        assert!(!one.is_ours());
        let two = Store::open(&directory).unwrap();
        assert!(!one.acquire().unwrap());
        drop(two);
        assert!(one.acquire().unwrap());
    }

    #[test]
    fn the_newest_files_that_cannot_be_read_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path()).unwrap();
        for text in ["a", "b", "c", "d", "e"] {
            write(&store, text);
            let aside = store.set_aside().unwrap();
            assert_eq!(fs::read_to_string(aside).unwrap(), text);
        }
        let bad = |nth| format!("{FILE}.bad-{nth}");
        assert_eq!(
            names(root.path()),
            [LOCK.to_owned(), bad(1), bad(2), bad(3)]
        );
        let oldest = root.path().join(bad(3));
        assert_eq!(fs::read_to_string(oldest).unwrap(), "c");
        assert!(store.set_aside().is_err(), "there is none");
    }

    #[test]
    fn what_is_no_directory_is_refused_with_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        for directory in [file.clone(), file.join("below")] {
            let looked = probe(&directory).unwrap_err().to_string();
            let opened = Store::open(&directory).err().unwrap().to_string();
            for said in [looked, opened] {
                assert!(said.starts_with("state.dir "), "{said}");
                assert!(said.contains("--state-dir"), "{said}");
            }
        }
    }
}
