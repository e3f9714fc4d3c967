//! What comes out of a command.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{CWD, Mode, mkfifoat};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::verdict::Output;

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// How much a pipe may hold at most. What comes after the end of the command is not its.
const PIPE_MAX: usize = 1024 * 1024;

/// The reading end of a pipe. It ends with the command, even if somebody else has the other end.
pub(super) struct Tap {
    pipe: pipe::Receiver,
    over: watch::Receiver<bool>,
    left: usize,
    chunk: Vec<u8>,
}

impl Tap {
    /// Until `over` says that the command has ended.
    pub(super) fn new(pipe: pipe::Receiver, over: watch::Receiver<bool>) -> Self {
        Self {
            pipe,
            over,
            left: PIPE_MAX,
            chunk: vec![0; CHUNK],
        }
    }

    pub(super) fn of(pipe: impl Into<OwnedFd>, over: watch::Receiver<bool>) -> io::Result<Self> {
        Ok(Self::new(pipe::Receiver::from_owned_fd(pipe.into())?, over))
    }

    /// The next bytes; none at the end.
    pub(super) async fn next(&mut self) -> &[u8] {
        let mut read = None;
        if !*self.over.borrow() {
            tokio::select! {
                biased;
                bytes = self.pipe.read(&mut self.chunk) => read = Some(bytes.unwrap_or(0)),
                _ = self.over.wait_for(|over| *over) => {}
            }
        }
        let read = read.unwrap_or_else(|| self.rest());
        &self.chunk[..read]
    }

    /// The command is gone, so what it wrote is in the pipe. The runtime may not have heard of it yet.
    fn rest(&mut self) -> usize {
        let most = self.left.min(CHUNK);
        let read = rustix::io::read(self.pipe.as_fd(), &mut self.chunk[..most]).unwrap_or(0);
        self.left -= read;
        read
    }

    /// Everything, unless it is more than that.
    pub(super) async fn all(mut self, max: usize) -> Output {
        let mut all = Vec::new();
        let mut beyond = false;
        loop {
            match self.next().await {
                [] => break,
                // It is read all the same: a command that cannot write does not end.
                more if beyond || all.len() + more.len() > max => beyond = true,
                more => all.extend_from_slice(more),
            }
        }
        if beyond {
            return Output::Beyond { max };
        }
        Output::Whole(Bytes::from(all))
    }
}

/// A fifo that anybody can write lines to, with an `echo` for each.
pub(super) struct Fifo {
    /// As long as there is a writer, the end of another one is not the end.
    pub(super) writer: pipe::Sender,
    pub(super) reader: pipe::Receiver,
}

impl Fifo {
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
        let reader = pipe::OpenOptions::new().open_receiver(path)?;
        let writer = pipe::OpenOptions::new().open_sender(path)?;
        Ok(Self { writer, reader })
    }
}
