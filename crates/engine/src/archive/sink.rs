//! Where tasks are kept instead of the archive in the store.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bytes::Bytes;
use plimsoll_core::task::Task;
use serde_json::{Map, Value, json};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::sync::Mutex;

use super::Archived;
use crate::Engine;

/// Why a sink could not keep a task.
pub type SinkError = Box<dyn std::error::Error + Send + Sync>;

/// Keeps tasks elsewhere.
#[async_trait]
pub trait Sink: Send + Sync + Debug {
    /// Keeps these tasks, and answers for each, in order.
    ///
    /// # Promise
    /// - What is answered with `Ok` is durable: the task is deleted next.
    /// - The same task may come again, if a crash came between the two.
    /// - A task that cannot be kept keeps no other from it. It comes again later.
    /// - Answers within a minute. Later answers are not waited for: the same tasks come again.
    ///
    /// The logs of these tasks go with them. What is to stay of them can be read with
    /// [`Tasks::logs`](crate::Tasks::logs) of this engine.
    async fn keep(&self, tasks: &[Task], engine: &Engine) -> Vec<Result<(), SinkError>>;
}

/// Appends tasks to a file, one line of JSON each, and syncs it before they are deleted.
///
/// Payloads and other bytes are objects: `{"json": …}` if they are JSON, otherwise `{"text": "…"}` if
/// they are UTF-8, otherwise `{"hex": "…"}`. After a crash the last line may be cut off, and a task may
/// be in the file twice: the later line counts. The file is for one process at a time: lines of two may
/// get mixed.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, Sweeper};
/// use plimsoll_engine::archive::JsonLines;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// # let folder = tempfile::tempdir().unwrap();
/// let sink = Arc::new(JsonLines::new(folder.path().join("archive.jsonl")));
/// let sweeper = Sweeper::new(engine).archive_to(sink);
/// assert_eq!(sweeper.pass().await.archived, 0);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl JsonLines {
    /// Lines at the end of this file, which is made when the first one comes.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            file: Mutex::new(None),
        }
    }

    async fn append(&self, lines: &[u8]) -> std::io::Result<()> {
        let mut open = self.file.lock().await;
        // It stays closed unless everything goes well: what an error leaves is looked at again.
        let mut file = match open.take() {
            Some(file) => file,
            None => self.open().await?,
        };
        file.write_all(lines).await?;
        file.flush().await?;
        file.sync_data().await?;
        *open = Some(file);
        Ok(())
    }

    async fn open(&self) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        let mut file = (options.read(true).append(true).create(true))
            .open(&self.path)
            .await?;
        if file.seek(std::io::SeekFrom::End(0)).await? > 0 {
            file.seek(std::io::SeekFrom::End(-1)).await?;
            if file.read_u8().await? != b'\n' {
                // A line that was cut off stays one line.
                file.write_all(b"\n").await?;
            }
        }
        if let Some(folder) = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty())
        {
            // Otherwise a crash may leave the lines without the file.
            File::open(folder).await?.sync_all().await?;
        }
        Ok(file)
    }
}

#[async_trait]
impl Sink for JsonLines {
    async fn keep(&self, tasks: &[Task], _: &Engine) -> Vec<Result<(), SinkError>> {
        let mut lines = Vec::new();
        let mut answers: Vec<Result<(), SinkError>> = Vec::new();
        for task in tasks {
            answers.push(match Archived::of(task) {
                Ok(archived) => {
                    lines.extend_from_slice(archived.to_json().to_string().as_bytes());
                    lines.push(b'\n');
                    Ok(())
                }
                Err(invalid) => Err(invalid.into()),
            });
        }
        if let Err(error) = self.append(&lines).await {
            let path = self.path.display();
            let why = format!("cannot append to {path}: {error}");
            return tasks.iter().map(|_| Err(why.clone().into())).collect();
        }
        answers
    }
}

/// Fields whose values are anything that authors like.
const BODIES: [&str; 3] = ["spec", "output", "checkpoint"];
/// Fields whose values are names, texts or ids.
const TEXTS: [&str; 10] = [
    "job_id",
    "user_id",
    "status",
    "queue",
    "kind",
    "error",
    "worker_id",
    "idempotency_key",
    "group",
    "trace",
];

impl Archived {
    /// All of it as one JSON object, as [`JsonLines`] writes it.
    pub fn to_json(&self) -> Value {
        let mut line = Map::new();
        for (name, value) in &self.fields {
            let name = name.as_str();
            let value = match name {
                _ if BODIES.contains(&name) => body(value),
                _ if TEXTS.contains(&name) => json!(String::from_utf8_lossy(value)),
                // Numbers and what is JSON already.
                _ => serde_json::from_slice(value).unwrap_or_else(|_| body(value)),
            };
            line.insert(name.to_owned(), value);
        }
        let attributes = self.attributes.iter();
        let attributes: Map<String, Value> = attributes
            .map(|(name, value)| (name.to_string(), body(value)))
            .collect();
        if !attributes.is_empty() {
            line.insert("attributes".to_owned(), attributes.into());
        }
        line.into()
    }
}

fn body(bytes: &Bytes) -> Value {
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        return json!({ "json": value });
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_kind_can_be_told_apart() {
        assert_eq!(body(&Bytes::from("{\"a\": 1}")), json!({"json": {"a": 1}}));
        assert_eq!(body(&Bytes::from("\"x\"")), json!({"json": "x"}));
        assert_eq!(body(&Bytes::from("x")), json!({"text": "x"}));
        assert_eq!(body(&Bytes::from_static(&[0, 255])), json!({"hex": "00ff"}));
        assert_eq!(body(&Bytes::new()), json!({"text": ""}));
    }
}
