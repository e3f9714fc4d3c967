//! Spans and events as a subscriber sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

type Fields = BTreeMap<String, String>;

/// A span, as it was when it was closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) fields: Fields,
    /// The names of the spans around it, the nearest first.
    pub(crate) around: Vec<String>,
}

/// What happened, in order: `open phase`, `close phase`, and the messages of events with the spans
/// that they were in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    closed: Vec<Seen>,
    happened: Vec<String>,
}

impl Watched {
    /// Watches a story on one thread.
    pub(crate) fn during(story: impl AsyncFnOnce()) -> Self {
        let watched = Self::default();
        let subscriber = tracing_subscriber::registry().with(watched.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        tracing::subscriber::with_default(subscriber, || runtime.unwrap().block_on(story()));
        watched
    }

    /// The spans of this name that were closed, in order.
    pub(crate) fn spans(&self, name: &str) -> Vec<Seen> {
        let inner = self.0.lock().unwrap();
        let spans = inner.closed.iter().filter(|span| span.name == name);
        spans.cloned().collect()
    }

    pub(crate) fn happened(&self) -> Vec<String> {
        self.0.lock().unwrap().happened.clone()
    }
}

struct Visitor<'a>(&'a mut Fields);

impl Visit for Visitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

/// Phases go by the name of their stage.
fn called(seen: &Seen) -> String {
    let stage = seen.fields.get("otel.name");
    stage.unwrap_or(&seen.name).clone()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Watched {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let around = span.scope().skip(1).map(|span| span.name().to_owned());
        let mut seen = Seen {
            name: span.name().to_owned(),
            around: around.collect(),
            ..Seen::default()
        };
        attributes.record(&mut Visitor(&mut seen.fields));
        let happened = format!("open {}", called(&seen));
        span.extensions_mut().insert(seen);
        self.0.lock().unwrap().happened.push(happened);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        if let Some(seen) = span.extensions_mut().get_mut::<Seen>() {
            values.record(&mut Visitor(&mut seen.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Visitor(&mut fields));
        let within: Vec<String> = (context.event_scope(event).into_iter().flatten())
            .filter_map(|span| span.extensions().get::<Seen>().map(called))
            .collect();
        let message = fields.get("message").cloned().unwrap_or_default();
        let happened = format!("{message} in [{}]", within.join(", "));
        self.0.lock().unwrap().happened.push(happened);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if let Some(seen) = span.extensions_mut().remove::<Seen>() {
            let mut inner = self.0.lock().unwrap();
            inner.happened.push(format!("close {}", called(&seen)));
            inner.closed.push(seen);
        }
    }
}
