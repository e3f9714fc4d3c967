//! What happens, as lines on standard error.

use std::io::IsTerminal;
use std::str::FromStr;

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use super::TelemetryError;

/// The form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people, in colour on a terminal.
    Text,
    /// For programs: an object on each line, with the spans it is in, so that `job_id` and
    /// `worker_id` are on every line that a handler writes.
    Json,
}

/// What is exported and shown unless `RUST_LOG` says otherwise.
pub(super) const LEVEL: LevelFilter = LevelFilter::INFO;

/// Installs these for the process, if there is anything to install.
pub(super) fn subscribe<L>(
    format: Option<LogFormat>,
    traces: Option<L>,
) -> Result<(), TelemetryError>
where
    L: Layer<Registry> + Send + Sync,
{
    if format.is_none() && traces.is_none() {
        return Ok(());
    }
    let lines = match format {
        Some(format) => Some(lines(format).with_filter(filter()?)),
        None => None,
    };
    let installed = tracing_subscriber::registry()
        .with(traces)
        .with(lines)
        .try_init();
    installed.map_err(|_| TelemetryError::Taken {
        what: "logs and traces",
    })
}

fn filter() -> Result<Targets, TelemetryError> {
    match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => {
            Targets::from_str(&filter).map_err(|error| TelemetryError::Filter {
                cause: error.to_string(),
            })
        }
        Ok(_) | Err(_) => Ok(Targets::new().with_default(LEVEL)),
    }
}

fn lines<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let lines = fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true);
            lines.with_current_span(false).with_span_list(true).boxed()
        }
    }
}
