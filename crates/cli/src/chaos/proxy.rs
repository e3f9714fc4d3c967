//! A server behind a network that does what it is told: hold everything back, cut connections, leave
//! them half open, lose answers.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They arrive.
    Pass,
    /// They arrive later, when the mode is another one.
    Stall,
    /// Connections that there are, or that are made now, stay open. Nothing arrives on them any more.
    HalfOpen,
    /// What the server is asked arrives, what it answers is lost.
    #[allow(dead_code, reason = "chaos needs less than the tests of a store")]
    LoseAnswers,
    /// So many bytes of an answer arrive, then the connection is cut.
    CutAnswers(usize),
}

#[derive(Clone, Copy, Debug)]
struct Orders {
    mode: Mode,
    /// How often all connections were cut.
    cuts: u64,
}

/// It ends, with all its connections, when this is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    orders: watch::Sender<Orders>,
}

impl Proxy {
    /// In front of a server, on a free port of the loopback interface.
    #[allow(clippy::disallowed_methods, reason = "it ends with the proxy")]
    pub(crate) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let mode = Mode::Pass;
        let orders = watch::Sender::new(Orders { mode, cuts: 0 });
        tokio::spawn(serve(listener, server, orders.subscribe()));
        Ok(Self { port, orders })
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.orders.send_modify(|orders| orders.mode = mode);
    }

    /// Cuts all connections that there are.
    pub(crate) fn cut(&self) {
        self.orders.send_modify(|orders| orders.cuts += 1);
    }
}

#[allow(clippy::disallowed_methods, reason = "they end with the proxy")]
async fn serve(listener: TcpListener, server: SocketAddr, mut orders: watch::Receiver<Orders>) {
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                tokio::spawn(relay(client, server, orders.clone()));
            },
            changed = orders.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// One connection. Both sides are closed when one of them is.
async fn relay(client: TcpStream, server: SocketAddr, mut orders: watch::Receiver<Orders>) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let cuts = orders.borrow().cuts;
    tokio::select! {
        () = pump(from_client, to_server, Way::Asks, orders.clone()) => {}
        () = pump(from_server, to_client, Way::Answers, orders.clone()) => {}
        _ = orders.wait_for(|orders| orders.cuts > cuts) => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Asks,
    Answers,
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: Way,
    mut orders: watch::Receiver<Orders>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut dead = false;
    loop {
        let mode = orders.borrow_and_update().mode;
        dead |= mode == Mode::HalfOpen;
        if mode == Mode::Stall && !dead {
            if orders.changed().await.is_err() {
                return;
            }
            continue;
        }
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            changed = orders.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        let bytes = match read {
            Ok(count) if count > 0 => &buffer[..count],
            // Whoever is at the other end does not hear of it.
            _ if dead && way == Way::Answers => return std::future::pending().await,
            _ => return,
        };
        let arrives = match (mode, way) {
            _ if dead => 0,
            (Mode::LoseAnswers, Way::Answers) => 0,
            (Mode::CutAnswers(most), Way::Answers) => bytes.len().min(most),
            _ => bytes.len(),
        };
        let written = to.write_all(&bytes[..arrives]).await;
        if written.is_err() || arrives < bytes.len() && matches!(mode, Mode::CutAnswers(_)) {
            return;
        }
    }
}
