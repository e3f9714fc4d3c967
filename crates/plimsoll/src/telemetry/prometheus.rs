//! Metrics for Prometheus.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use plimsoll_core::clock::{Clock, SystemClock};
use plimsoll_engine::telemetry::{Kind, METRICS, describe};
use tokio::task::AbortHandle;

use super::TelemetryError;
use super::serve::serve;

/// Samples of histograms are put into their buckets this often, so that they do not pile up while
/// nobody reads them.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Metrics that are recorded and served.
#[derive(Debug)]
pub(super) struct Metrics {
    handle: PrometheusHandle,
    address: SocketAddr,
    serving: AbortHandle,
}

impl Metrics {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn render(&self) -> String {
        self.handle.render()
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Records for this process, and serves what was recorded.
pub(super) fn install(address: SocketAddr) -> Result<Metrics, TelemetryError> {
    let failed = |cause| TelemetryError::Listen { address, cause };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let recorder = recorder()?;
    let handle = recorder.handle();
    let taken = |_| TelemetryError::Taken { what: "metrics" };
    metrics::set_global_recorder(recorder).map_err(taken)?;
    describe();
    let serving = beside(handle.clone(), listener);
    tracing::info!(address = %bound, "metrics are served at /metrics");
    Ok(Metrics {
        handle,
        address: bound,
        serving,
    })
}

fn recorder() -> Result<PrometheusRecorder, TelemetryError> {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS {
        if let Kind::Histogram(buckets) = metric.kind {
            let name = Matcher::Full(metric.name.to_owned());
            let failed = |error: BuildError| TelemetryError::Metrics {
                cause: error.to_string(),
            };
            builder = (builder.set_buckets_for_metric(name, buckets)).map_err(failed)?;
        }
    }
    Ok(builder.build_recorder())
}

/// Serves and tidies up beside everything else, until it is aborted.
#[allow(clippy::disallowed_methods)]
fn beside(handle: PrometheusHandle, listener: tokio::net::TcpListener) -> AbortHandle {
    let upkeep = {
        let handle = handle.clone();
        async move {
            let clock = SystemClock::new();
            loop {
                clock.sleep(UPKEEP_EVERY).await;
                handle.run_upkeep();
            }
        }
    };
    let work = async move {
        tokio::select! {
            () = upkeep => {}
            () = serve(listener, move || handle.render()) => {}
        }
    };
    tokio::spawn(work).abort_handle()
}
