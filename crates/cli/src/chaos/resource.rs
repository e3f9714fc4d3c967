//! What the locks protect: one file for each of them, which stands for something outside of the
//! store. It refuses whoever comes with a lower token than somebody before.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The highest token so far, as digits and an end of line.
const HIGHEST_BYTES: usize = 21;

/// One of these files.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    path: PathBuf,
}

/// A line of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) token: u64,
    /// The process: no other life of it has the same name.
    pub(super) holder: String,
    pub(super) event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Event {
    /// A write that was taken.
    Accepted,
    /// A write that came too late.
    Refused,
    /// A write that came too late from one who was told that it still had the lock.
    Deceived,
    /// The end of a turn: how long it had waited for the lock, and whether it still had it.
    Turn { waited_ms: u64, lost: bool },
}

impl Resource {
    pub(super) fn new(folder: &Path, lock: &str) -> Self {
        Self {
            path: folder.join(format!("{lock}.resource")),
        }
    }

    /// Writes, if the token is not too low. Answers whether it was taken. Waits for whoever is at
    /// it, which may be somebody frozen.
    pub(super) fn offer(
        &self,
        token: u64,
        holder: &str,
        is_held: impl FnOnce() -> bool,
    ) -> io::Result<bool> {
        let (mut file, highest) = self.open()?;
        let event = match token >= highest {
            true => Event::Accepted,
            // Only now, when nobody else can write: who asks earlier may be frozen in between.
            false if is_held() => Event::Deceived,
            false => Event::Refused,
        };
        let taken = event == Event::Accepted;
        if token > highest {
            file.seek(SeekFrom::Start(0))?;
            // Before the line: one who dies in between has kept others out, and nothing more.
            file.write_all(head(token).as_bytes())?;
        }
        append(&mut file, token, holder, event)?;
        Ok(taken)
    }

    /// Notes the end of a turn.
    pub(super) fn turn(
        &self,
        token: u64,
        holder: &str,
        waited_ms: u64,
        lost: bool,
    ) -> io::Result<()> {
        let (mut file, _) = self.open()?;
        append(&mut file, token, holder, Event::Turn { waited_ms, lost })
    }

    /// Everything that was written so far, in order.
    pub(super) fn entries(&self) -> io::Result<Vec<Entry>> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let (mut file, _) = self.open()?;
        file.seek(SeekFrom::Start(HIGHEST_BYTES as u64))?;
        let lines = BufReader::new(file).lines();
        lines
            .map(|line| serde_json::from_str(&line?).map_err(io::Error::other))
            .collect()
    }

    /// Nobody else is at the file until it is dropped.
    fn open(&self) -> io::Result<(File, u64)> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&self.path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let mut digits = [0; HIGHEST_BYTES];
        if file.metadata()?.len() == 0 {
            file.write_all(head(0).as_bytes())?;
            return Ok((file, 0));
        }
        file.read_exact(&mut digits)?;
        let digits = String::from_utf8_lossy(&digits);
        let highest = digits.trim_end().parse().map_err(io::Error::other)?;
        Ok((file, highest))
    }
}

fn head(token: u64) -> String {
    format!("{token:020}\n")
}

fn append(file: &mut File, token: u64, holder: &str, event: Event) -> io::Result<()> {
    let holder = holder.into();
    let entry = Entry {
        token,
        holder,
        event,
    };
    let line = serde_json::to_string(&entry).map_err(io::Error::other)? + "\n";
    file.seek(SeekFrom::End(0))?;
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_tokens_are_refused_and_everything_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let resource = Resource::new(folder.path(), "lock");
        assert_eq!(resource.entries().unwrap(), []);
        let held = || true;
        assert!(resource.offer(7, "a", held).unwrap());
        assert!(resource.offer(7, "a", held).unwrap());
        assert!(resource.offer(19, "b", held).unwrap());
        assert!(!resource.offer(7, "a", || false).unwrap());
        assert!(!resource.offer(18, "c", held).unwrap());
        resource.turn(19, "b", 5, false).unwrap();
        let waited_ms = 5;
        let expected = [
            (7, Event::Accepted),
            (7, Event::Accepted),
            (19, Event::Accepted),
            (7, Event::Refused),
            (18, Event::Deceived),
            (
                19,
                Event::Turn {
                    waited_ms,
                    lost: false,
                },
            ),
        ];
        let entries = resource.entries().unwrap().into_iter();
        let entries = entries.map(|entry| (entry.token, entry.event));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }
}
