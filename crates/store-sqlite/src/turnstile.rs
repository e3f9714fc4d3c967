//! Lets processes take turns.
//!
//! SQLite's own lock goes to whoever asks at the right moment, so a busy process could keep an idle
//! one out. Whoever wants to write takes the turnstile first and leaves it once the file is its
//! own: at most one waits for the file, and it is next.
//!
//! Turns are a courtesy: SQLite's lock keeps order without them. A process that was stopped inside
//! the turnstile is waited for once; after that the others go past it until it leaves.

use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Result};

use crate::config::Config;
use crate::threads::Patience;

#[derive(Debug)]
pub(crate) struct Turnstile {
    file: File,
    wait_most: Duration,
    /// Somebody stands in it and does not move.
    stuck: Cell<bool>,
}

impl Turnstile {
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let mut path = config.path.clone().into_os_string();
        path.push("-turn");
        let path = PathBuf::from(path);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        match file {
            Ok(file) => Ok(Self {
                file,
                wait_most: config.busy_timeout,
                stuck: Cell::new(false),
            }),
            Err(error) => Err(Error::Unavailable(Unavailable {
                applied: Applied::No,
                cause: format!(
                    "cannot open {}: {error}: check that its folder is there and can be written",
                    path.display()
                ),
            })),
        }
    }

    /// Does what needs the file's lock, as the only one that waits for it.
    pub(crate) fn through<T>(&self, act: impl FnOnce() -> T) -> T {
        let taken = self.take();
        let done = act();
        if taken {
            self.file.unlock().ok();
        }
        done
    }

    fn take(&self) -> bool {
        let mut patience = Patience::new(if self.stuck.get() {
            Duration::ZERO
        } else {
            self.wait_most
        });
        loop {
            match self.file.try_lock() {
                Ok(()) => {
                    self.stuck.set(false);
                    return true;
                }
                Err(std::fs::TryLockError::WouldBlock) if patience.wait() => {}
                Err(std::fs::TryLockError::WouldBlock) => {
                    self.stuck.set(true);
                    return false;
                }
                // A file system without locks has no turns.
                Err(std::fs::TryLockError::Error(_)) => return false,
            }
        }
    }
}
