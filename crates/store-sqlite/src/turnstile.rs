//! Lets processes take turns.
//!
//! SQLite's own lock goes to whoever asks at the right moment, so a busy process could keep an idle
//! one out. Whoever wants to write takes the turnstile first and leaves it once the file is its
//! own: at most one waits for the file, and it is next.
//!
//! Turns are a courtesy: SQLite's lock keeps order without them. A process that was stopped inside
//! the turnstile is waited for once; after that the others wait only a moment before they go past
//! it, until it leaves.

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Result};

use crate::config::Config;
use crate::threads::Patience;

/// How long to wait for somebody who did not move before.
const STUCK_WAIT: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Turnstile {
    file: File,
    /// It was not there before.
    created: bool,
    /// Somebody stands in it and does not move.
    stuck: Cell<bool>,
}

impl Turnstile {
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let path = path(config);
        match open(&path) {
            Ok((file, created)) => {
                // Whoever may open the database may take turns.
                if let Ok(database) = std::fs::metadata(&config.path) {
                    file.set_permissions(database.permissions()).ok();
                }
                Ok(Self {
                    file,
                    created,
                    stuck: Cell::new(false),
                })
            }
            Err(error) => Err(Error::Unavailable(Unavailable {
                applied: Applied::No,
                cause: format!(
                    "cannot open {}: {error}: check that its folder is there and can be written",
                    path.display()
                ),
            })),
        }
    }

    /// Leaves nothing beside a database that is not ours.
    pub(crate) fn remove(self, config: &Config) {
        if self.created {
            std::fs::remove_file(path(config)).ok();
        }
    }

    /// Does what needs the file's lock, as the only one that waits for it. What is left of the
    /// patience after waiting for the turn is for the lock.
    pub(crate) fn through<T>(
        &self,
        patience: &mut Patience,
        act: impl FnOnce(&mut Patience) -> T,
    ) -> T {
        let taken = self.take(patience);
        let done = act(patience);
        if taken {
            self.file.unlock().ok();
        }
        done
    }

    fn take(&self, patience: &mut Patience) -> bool {
        let mut moment = Patience::new(STUCK_WAIT);
        let patience = match self.stuck.get() {
            true => &mut moment,
            false => patience,
        };
        loop {
            match self.file.try_lock() {
                Ok(()) => {
                    self.stuck.set(false);
                    return true;
                }
                Err(TryLockError::WouldBlock) if patience.wait() => {}
                Err(TryLockError::WouldBlock) => {
                    self.stuck.set(true);
                    return false;
                }
                // A file system without locks has no turns.
                Err(TryLockError::Error(_)) => return false,
            }
        }
    }
}

fn path(config: &Config) -> PathBuf {
    let mut path = config.path.clone().into_os_string();
    path.push("-turn");
    path.into()
}

/// The file, and whether it is new. A lock needs no more than that it is open.
fn open(path: &Path) -> std::io::Result<(File, bool)> {
    match File::create_new(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            File::open(path).map(|file| (file, false))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn somebody_who_does_not_move_is_waited_for_once_and_then_passed() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config::new(folder.path().join("x.db"));
        let turnstile = Turnstile::open(&config).expect("a turnstile");
        let other = File::open(path(&config)).expect("the file");
        let passes = |patience| {
            let mut patience = Patience::new(patience);
            // Who has the turn keeps it while it acts.
            turnstile.through(&mut patience, |_| other.try_lock().is_err())
        };
        assert!(passes(Duration::ZERO), "nobody is in the way");
        other.lock().expect("nobody is in it");
        passes(Duration::from_millis(1));
        assert!(turnstile.stuck.get());
        // Would wait for a day if it waited for as long as the first time.
        passes(Duration::from_secs(86_400));
        other.unlock().expect("it leaves");
        assert!(passes(Duration::ZERO) && !turnstile.stuck.get());
    }

    #[test]
    fn only_who_made_the_file_removes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config::new(folder.path().join("x.db"));
        let first = Turnstile::open(&config).expect("a turnstile");
        Turnstile::open(&config).expect("the same").remove(&config);
        assert!(path(&config).exists());
        first.remove(&config);
        assert!(!path(&config).exists());
    }
}
