//! Those in this process who read jobs: they see at once what it writes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError, Weak};

use plimsoll_core::Name;
use plimsoll_core::record::Record;

/// Somebody who reads a job.
pub(crate) trait Reader: fmt::Debug + Send + Sync {
    /// This process has written this record of a state.
    fn wrote(&self, record: &Record);
}

/// Who reads which job.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<BTreeMap<Name, Weak<dyn Reader>>>);

impl Readers {
    /// From now on, this one sees what this process writes of the job, as long as it is there.
    #[cfg_attr(not(test), expect(dead_code))]
    pub(crate) fn attach(&self, job: Name, reader: Weak<dyn Reader>) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|_, reader| reader.strong_count() > 0);
        readers.insert(job, reader);
    }

    /// Shows what was written.
    pub(super) fn wrote(&self, job: &Name, record: &Record) {
        let reader = {
            let readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            readers.get(job).and_then(Weak::upgrade)
        };
        if let Some(reader) = reader {
            reader.wrote(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_core::{Memory, Namespace, Result};

    use super::*;
    use crate::Engine;
    use crate::jobs::NewState;

    #[derive(Debug, Default)]
    struct Seen(Mutex<Vec<Record>>);

    impl Reader for Seen {
        fn wrote(&self, record: &Record) {
            self.0.lock().unwrap().push(record.clone());
        }
    }

    #[tokio::test]
    async fn a_reader_has_seen_a_write_when_the_writer_is_answered() -> Result<()> {
        let store = Arc::new(Memory::new().open(Namespace::new("test")?));
        let engine = Engine::new(store);
        let seen = Arc::new(Seen::default());
        let reader: Arc<dyn Reader> = seen.clone();
        (engine.readers()).attach(Name::new("import")?, Arc::downgrade(&reader));
        for job in ["import", "other"] {
            let manager = engine.jobs().join(job, 0, 1).await?;
            manager.set_state(NewState::new("ingest", 40)?).await?;
        }
        let seen = seen.0.lock().unwrap();
        let keys: Vec<&str> = seen.iter().map(|record| record.key.as_str()).collect();
        assert_eq!(keys, ["plimsoll.states.import.0-ingest"]);
        Ok(())
    }
}
