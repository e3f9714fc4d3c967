//! A page over HTTP: `GET /metrics` and nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_core::clock::{Clock, SystemClock};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many may read at the same time. More than that wait.
const READERS_MAX: usize = 16;
/// How long somebody may take to ask.
const ASK_MAX: Duration = Duration::from_secs(10);
/// How long a reader may stay. It may come again.
const STAY_MAX: Duration = Duration::from_secs(300);
/// The system has no room for another connection: the next try waits this long.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// The text format of Prometheus.
const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Serves until it is dropped, and with it all who read.
#[allow(clippy::disallowed_methods)]
pub(super) async fn serve(
    listener: TcpListener,
    page: impl Fn() -> String + Clone + Send + Sync + 'static,
) {
    let clock = Arc::new(SystemClock::new());
    let places = Arc::new(Semaphore::new(READERS_MAX));
    let mut readers = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        while readers.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let (page, clock) = (page.clone(), clock.clone());
                readers.spawn(async move {
                    let _place = place;
                    tokio::select! {
                        () = answer(stream, page) => {}
                        () = clock.sleep(STAY_MAX) => {}
                    }
                });
            }
            Err(_) => clock.sleep(AFTER_ERROR).await,
        }
    }
}

async fn answer(stream: TcpStream, page: impl Fn() -> String + Clone + Send + Sync + 'static) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), &page);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASK_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // Whoever goes away in the middle does not want to know.
    connection.await.ok();
}

fn respond(method: &Method, path: &str, page: impl Fn() -> String) -> Response<Full<Bytes>> {
    let (status, body) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, page()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        _ => (StatusCode::NOT_FOUND, "metrics are at /metrics\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, FORMAT);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_served() {
        let status = |method, path| respond(&method, path, || "page".into()).status().as_u16();
        assert_eq!(status(Method::GET, "/metrics"), 200);
        assert_eq!(status(Method::HEAD, "/metrics"), 200);
        assert_eq!(status(Method::POST, "/metrics"), 405);
        assert_eq!(status(Method::GET, "/"), 404);
        assert_eq!(status(Method::GET, "/metrics/"), 404);
    }
}
