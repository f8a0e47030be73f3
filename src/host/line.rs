//! A connection that notes when its client resets it, or does not take what was written. hyper does not tell: between two requests an
//! error of the connection is its end, like any other. [`super::http`] serves such lines, and [`super::agents`] asks them.

use crate::sabotage::on;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// How long the client's host may take nothing of an outcome until our kernel ends the connection: a host that lost its power or its
/// network says nothing. Shorter than the time after which an outcome over MCP counts as taken.
const UNACKNOWLEDGED: Duration = Duration::from_secs(8);

/// Whether the client of a connection has reset it: what was written last may not have been read. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    reset: CancellationToken,
    carries_outcome: Arc<AtomicBool>,
}

impl Line {
    fn note<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &done {
            self.reset.cancel();
        }
        done
    }

    pub(super) fn was_reset(&self) -> bool {
        self.reset.is_cancelled()
    }

    /// Waits until it is.
    pub(super) async fn reset(&self) {
        self.reset.cancelled().await;
    }

    /// What is written next is an outcome that counts as taken if nothing is heard of it.
    pub(super) fn carries_outcome(&self) {
        self.carries_outcome.store(true, Ordering::Relaxed);
    }
}

impl<S: AsFd> Noted<S> {
    fn before_write(&self) {
        if self.line.carries_outcome.swap(false, Ordering::Relaxed) && !on("silenttaken") {
            // Without it, the outcome of a silent client counts as taken.
            let _not_a_socket = SockRef::from(&self.stream).set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        }
    }
}

/// A stream on such a line.
#[derive(Debug)]
pub(super) struct Noted<S> {
    pub(super) stream: S,
    pub(super) line: Line,
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.line.note(read)
    }
}

impl<S: AsyncWrite + AsFd + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.before_write();
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.line.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.before_write();
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.line.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
