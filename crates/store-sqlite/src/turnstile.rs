//! Lets processes take turns.
//!
//! SQLite's own lock goes to whoever asks at the right moment, so a busy process could keep an idle
//! one out. Whoever wants to write takes the turnstile first and leaves it once the file is its
//! own: at most one waits for the file, and it is next.

use std::fs::File;
use std::path::PathBuf;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Result};

use crate::config::Config;

#[derive(Debug)]
pub(crate) struct Turnstile {
    file: File,
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
            Ok(file) => Ok(Self { file }),
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
        // A file system without locks has no turns; SQLite's own lock still keeps order.
        let taken = self.file.lock().is_ok();
        let done = act();
        if taken {
            self.file.unlock().ok();
        }
        done
    }
}
