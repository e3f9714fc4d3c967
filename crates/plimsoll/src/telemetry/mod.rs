//! Metrics, traces and logs of a process.
//!
//! The engine records through facades and knows no exporter: see [`METRICS`], [`Propagation`],
//! [`Sampler`]. A program that wants them exported calls [`setup`] first, before it opens a store:
//!
//! | feature | gives |
//! |---|---|
//! | `logs` | what happens as lines on standard error: text for people, JSON for programs |
//! | `prometheus` | `/metrics` over HTTP, and the same as text |
//! | `otlp` | traces to an OpenTelemetry collector, continued over tasks |

#[cfg(feature = "logs")]
mod logs;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(feature = "prometheus")]
mod prometheus;
#[cfg(feature = "prometheus")]
mod serve;

pub use plimsoll_engine::telemetry::*;

#[cfg(feature = "logs")]
pub use logs::LogFormat;

/// Why telemetry could not be set up or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// Something else is installed in this process already.
    #[error("{what} of this process are taken already")]
    Taken {
        /// Metrics or logs and traces.
        what: &'static str,
    },
    /// Nobody can listen there.
    #[error("metrics cannot be served at {address}: {cause}")]
    Listen {
        /// The address that was asked for.
        address: std::net::SocketAddr,
        /// What the system says.
        cause: std::io::Error,
    },
    /// Metrics cannot be recorded.
    #[error("metrics cannot be recorded: {cause}")]
    Metrics {
        /// What the recorder says.
        cause: String,
    },
    /// A filter cannot be read.
    #[error("RUST_LOG must be like info,plimsoll=debug: {cause}")]
    Filter {
        /// What is wrong with it.
        cause: String,
    },
    /// Traces cannot be exported.
    #[error("traces cannot be exported: {cause}")]
    Traces {
        /// What the exporter says.
        cause: String,
    },
}

/// Puts telemetry together: see [`setup`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before install"]
pub struct Setup {
    #[cfg_attr(not(feature = "otlp"), allow(dead_code))]
    service: String,
    #[cfg(feature = "logs")]
    logs: Option<LogFormat>,
    #[cfg(feature = "prometheus")]
    metrics: Option<std::net::SocketAddr>,
    /// Whether to export traces, and where to if not as the environment says.
    #[cfg(feature = "otlp")]
    traces: Option<Option<String>>,
}

/// Telemetry of a process, for a service of this name. Nothing is on unless asked for.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let telemetry = plimsoll::telemetry::setup("media-worker");
/// # #[cfg(feature = "prometheus")]
/// let telemetry = telemetry.metrics(([127, 0, 0, 1], 0).into());
/// let telemetry = telemetry.install()?;
/// // Open stores and run workers now.
/// telemetry.shutdown().await?;
/// # Ok::<(), plimsoll::telemetry::TelemetryError>(()) }).unwrap();
/// ```
pub fn setup(service: impl Into<String>) -> Setup {
    Setup {
        service: service.into(),
        #[cfg(feature = "logs")]
        logs: None,
        #[cfg(feature = "prometheus")]
        metrics: None,
        #[cfg(feature = "otlp")]
        traces: None,
    }
}

impl Setup {
    /// Writes what happens to standard error. `RUST_LOG` says what: `info` unless it is set.
    #[cfg(feature = "logs")]
    pub fn logs(mut self, format: LogFormat) -> Self {
        self.logs = Some(format);
        self
    }

    /// Serves `/metrics` at this address. Whoever can reach it can read them: stay on the loopback
    /// interface unless the network is yours.
    #[cfg(feature = "prometheus")]
    pub fn metrics(mut self, address: std::net::SocketAddr) -> Self {
        self.metrics = Some(address);
        self
    }

    /// Exports traces over OTLP (gRPC) to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, or to
    /// `http://localhost:4317`. The other variables of OpenTelemetry count as well.
    #[cfg(feature = "otlp")]
    pub fn traces(mut self) -> Self {
        self.traces = Some(None);
        self
    }

    /// Exports traces over OTLP (gRPC) to this endpoint.
    #[cfg(feature = "otlp")]
    pub fn traces_to(mut self, endpoint: impl Into<String>) -> Self {
        self.traces = Some(Some(endpoint.into()));
        self
    }

    /// Installs it for this process, inside a runtime.
    pub fn install(self) -> Result<Installed, TelemetryError> {
        #[cfg(feature = "otlp")]
        let traces = match self.traces {
            Some(endpoint) => Some(otlp::Traces::new(self.service, endpoint)?),
            None => None,
        };
        #[cfg(feature = "otlp")]
        logs::subscribe(self.logs, traces.as_ref().map(otlp::Traces::layer))?;
        #[cfg(all(feature = "logs", not(feature = "otlp")))]
        logs::subscribe(self.logs, None::<tracing_subscriber::layer::Identity>)?;
        #[cfg(feature = "otlp")]
        if traces.is_some() {
            propagate(std::sync::Arc::new(otlp::W3c::default()));
        }
        Ok(Installed {
            #[cfg(feature = "prometheus")]
            metrics: self.metrics.map(prometheus::install).transpose()?,
            #[cfg(feature = "otlp")]
            traces,
        })
    }
}

/// Telemetry that is installed.
#[derive(Debug)]
pub struct Installed {
    #[cfg(feature = "prometheus")]
    metrics: Option<prometheus::Metrics>,
    #[cfg(feature = "otlp")]
    traces: Option<otlp::Traces>,
}

impl Installed {
    /// Where `/metrics` is served: tells the port if 0 was asked for.
    #[cfg(feature = "prometheus")]
    pub fn metrics_address(&self) -> Option<std::net::SocketAddr> {
        self.metrics.as_ref().map(prometheus::Metrics::address)
    }

    /// The metrics as Prometheus reads them, for who has a server already.
    #[cfg(feature = "prometheus")]
    pub fn render(&self) -> Option<String> {
        self.metrics.as_ref().map(prometheus::Metrics::render)
    }

    /// Sends what has not been sent. Call it before the process ends, or the last traces are lost.
    pub async fn shutdown(self) -> Result<(), TelemetryError> {
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces {
            traces.shutdown().await?;
        }
        Ok(())
    }
}
