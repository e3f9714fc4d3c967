//! Traces for an OpenTelemetry collector.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use plimsoll_engine::telemetry::Propagation;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

use super::TelemetryError;
use super::logs::LEVEL;

/// How long the last traces may take.
const SHUTDOWN_MAX: Duration = Duration::from_secs(5);
/// What exporting is done with. Its own spans would be exported, for ever.
const EXPORTING: [&str; 5] = ["h2", "hyper", "opentelemetry", "tonic", "tower"];

/// An exporter of traces.
#[derive(Debug)]
pub(super) struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    pub(super) fn new(service: String, endpoint: Option<String>) -> Result<Self, TelemetryError> {
        let exporter = SpanExporter::builder().with_tonic();
        let exporter = match endpoint {
            Some(endpoint) => exporter.with_endpoint(endpoint),
            None => exporter,
        };
        let exporter = exporter.build().map_err(failed)?;
        let resource = Resource::builder().with_service_name(service).build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource)
            .build();
        Ok(Self { provider })
    }

    pub(super) fn layer(&self) -> impl Layer<Registry> + Send + Sync + use<> {
        let tracer = self.provider.tracer("plimsoll");
        let own = EXPORTING.map(|target| (target, LevelFilter::OFF));
        let shown = Targets::new().with_default(LEVEL).with_targets(own);
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        layer.with_filter(shown)
    }

    /// Sends what is left. The exporter blocks, and needs the runtime meanwhile.
    #[allow(clippy::disallowed_methods)]
    pub(super) async fn shutdown(self) -> Result<(), TelemetryError> {
        let shutdown = move || self.provider.shutdown_with_timeout(SHUTDOWN_MAX);
        let sent = tokio::task::spawn_blocking(shutdown).await;
        sent.map_err(failed)?.map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> TelemetryError {
    TelemetryError::Traces {
        cause: error.to_string(),
    }
}

/// Traces in tasks as W3C trace context.
#[derive(Debug, Default)]
pub(super) struct W3c {
    propagator: TraceContextPropagator,
}

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

impl W3c {
    fn read(&self, trace: &str) -> Option<Context> {
        let (parent, state) = trace.split_once(' ').unwrap_or((trace, ""));
        let carrier = [(PARENT, parent), (STATE, state)];
        let carrier = carrier.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let context = self.propagator.extract(&HashMap::from(carrier));
        context.span().span_context().is_valid().then_some(context)
    }
}

impl Propagation for W3c {
    fn current(&self) -> Option<String> {
        let mut carrier = HashMap::new();
        let context = Span::current().context();
        self.propagator.inject_context(&context, &mut carrier);
        let parent = carrier.remove(PARENT)?;
        match carrier.remove(STATE) {
            Some(state) if !state.is_empty() => Some(format!("{parent} {state}")),
            Some(_) | None => Some(parent),
        }
    }

    fn continue_as_child(&self, span: &Span, trace: &str) {
        if let Some(context) = self.read(trace)
            && let Err(error) = span.set_parent(context)
        {
            tracing::debug!(%error, "a trace cannot be continued");
        }
    }

    fn link(&self, span: &Span, trace: &str) {
        if let Some(context) = self.read(trace) {
            span.add_link(context.span().span_context().clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_is_read_with_its_state_and_text_that_is_none_is_passed_over() {
        let w3c = W3c::default();
        let context = w3c.read(&format!("{TRACE} vendor=1,other=2")).unwrap();
        let span = context.span().span_context().clone();
        assert_eq!(
            span.trace_id().to_string(),
            "0af7651916cd43dd8448eb211c80319c"
        );
        assert_eq!(span.trace_state().header(), "vendor=1,other=2");
        assert!(w3c.read(TRACE).is_some());
        for text in ["", "hello", "00-0-0-01", &TRACE[4..]] {
            assert!(w3c.read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn there_is_no_trace_where_nobody_traces() {
        assert_eq!(W3c::default().current(), None);
    }
}
