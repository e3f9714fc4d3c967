//! A recorder, and what it holds in a form that tests can compare.

use std::collections::BTreeMap;

use metrics::{Key, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

/// Looks at what is recorded. Everything begins anew with every look.
#[derive(Clone)]
pub(crate) struct Look(Snapshotter);

impl Look {
    pub(crate) fn now(&self) -> Figures {
        let rows = self.0.snapshot().into_vec().into_iter();
        let rows = rows.map(|(key, unit, _, value)| (key.key().clone(), unit, value));
        Figures {
            rows: rows.collect(),
        }
    }
}

/// What was recorded, by name and labels: `jobs_completed_total{status=failed}`.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) rows: Vec<(Key, Option<Unit>, DebugValue)>,
}

impl Figures {
    /// What everything that the story does records. It is given something to look at gauges with.
    pub(crate) fn of(story: impl AsyncFnOnce(Look)) -> Self {
        let recorder = DebuggingRecorder::new();
        let look = Look(recorder.snapshotter());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        metrics::with_local_recorder(&recorder, || runtime.block_on(story(look.clone())));
        look.now()
    }

    /// The value of a counter or gauge.
    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> f64 {
        match self.find(name) {
            DebugValue::Counter(count) => *count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(_) => panic!("{name} is a histogram"),
        }
    }

    /// What a histogram was given, in order.
    #[track_caller]
    pub(crate) fn samples(&self, name: &str) -> Vec<f64> {
        match self.find(name) {
            DebugValue::Histogram(samples) => samples.iter().map(|one| one.into_inner()).collect(),
            DebugValue::Counter(_) | DebugValue::Gauge(_) => panic!("{name} is no histogram"),
        }
    }

    /// All values of a metric, by its labels, without those that are zero.
    pub(crate) fn by_label(&self, metric: &str) -> BTreeMap<String, f64> {
        let values = self.rows.iter().filter(|(key, ..)| key.name() == metric);
        values
            .map(|(key, ..)| (shown(key), self.value(&shown(key))))
            .filter(|(_, value)| *value != 0.0)
            .collect()
    }

    #[track_caller]
    fn find(&self, name: &str) -> &DebugValue {
        let row = self.rows.iter().find(|(key, ..)| shown(key) == name);
        match row {
            Some((.., value)) => value,
            None => {
                let names: Vec<String> = self.rows.iter().map(|(key, ..)| shown(key)).collect();
                panic!("no {name} in {names:#?}")
            }
        }
    }
}

/// A metric as people write it.
pub(crate) fn shown(key: &Key) -> String {
    let labels: Vec<String> = (key.labels())
        .map(|label| format!("{}={}", label.key(), label.value()))
        .collect();
    match labels.is_empty() {
        true => key.name().to_owned(),
        false => format!("{}{{{}}}", key.name(), labels.join(",")),
    }
}
