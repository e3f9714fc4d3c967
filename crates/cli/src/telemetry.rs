//! What this process tells about itself: logs, metrics, traces.

use clap::{Args, ValueEnum};
use plimsoll::telemetry::{Installed, LogFormat, TelemetryError, setup};

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct Telemetry {
    /// Writes what happens to standard error, in this form. RUST_LOG says how much of it, and
    /// turns it on as well.
    #[arg(long, global = true, value_enum, value_name = "FORM")]
    logs: Option<Logs>,
    /// Serves metrics for Prometheus here at /metrics, as 127.0.0.1:9464.
    #[cfg(feature = "prometheus")]
    #[arg(long, global = true, value_name = "ADDRESS")]
    metrics: Option<std::net::SocketAddr>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Logs {
    /// For people.
    Text,
    /// For programs: an object on each line.
    Json,
}

impl Telemetry {
    /// Whether somebody may read metrics.
    pub(crate) fn serves_metrics(&self) -> bool {
        #[cfg(feature = "prometheus")]
        return self.metrics.is_some();
        #[cfg(not(feature = "prometheus"))]
        false
    }

    /// Installs what was asked for. Traces go out if OTEL_EXPORTER_OTLP_ENDPOINT says where to.
    pub(crate) fn install(&self) -> Result<Installed, TelemetryError> {
        let telemetry = setup("plimsoll");
        let telemetry = match (self.logs, is_set("RUST_LOG")) {
            (Some(Logs::Json), _) => telemetry.logs(LogFormat::Json),
            (Some(Logs::Text), _) | (None, true) => telemetry.logs(LogFormat::Text),
            (None, false) => telemetry,
        };
        #[cfg(feature = "prometheus")]
        let telemetry = match self.metrics {
            Some(address) => telemetry.metrics(address),
            None => telemetry,
        };
        #[cfg(feature = "otlp")]
        let telemetry = match is_set("OTEL_EXPORTER_OTLP_ENDPOINT") {
            true => telemetry.traces(),
            false => telemetry,
        };
        telemetry.install()
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}
