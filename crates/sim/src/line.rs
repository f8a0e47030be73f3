//! A listener whose connections can be reset from within a handler: the way to pretend that the network broke.
//!
//! A reset shows to the client as a real one (`RST`, nothing more is written). Used by both stand-ins: where they
//! serve, and where their faults are carried out.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The switch that resets one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Line(Arc<AtomicBool>);

impl Line {
    /// From now on the connection is gone.
    pub(crate) fn reset(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_reset(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A TCP listener of such connections, which all end with the stand-in.
pub(crate) struct Lines {
    pub(crate) listener: TcpListener,
    pub(crate) stop: CancellationToken,
}

/// One such connection.
pub(crate) struct Wire {
    stream: TcpStream,
    line: Line,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Listener for Lines {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Wire, SocketAddr) {
        let (stream, addr) = Listener::accept(&mut self.listener).await;
        // Small answers leave at once; an error would only cost time.
        let _ = stream.set_nodelay(true);
        let line = Line::default();
        let stop = Box::pin(self.stop.clone().cancelled_owned());
        (Wire { stream, line, stop }, addr)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, Lines>> for Line {
    fn connect_info(stream: IncomingStream<'_, Lines>) -> Self {
        stream.io().line.clone()
    }
}

impl Wire {
    fn check(&self) -> io::Result<()> {
        if self.line.is_reset() {
            // With no time to linger, closing sends a reset instead of a goodbye.
            self.stream.set_zero_linger()?;
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        // An idle connection must not outlive the stand-in and answer for it.
        if self.stop.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
