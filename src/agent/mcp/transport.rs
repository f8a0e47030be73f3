//! Stands between the protocol and the pipe and tells [`Calls`] what passes: which calls came, which replies were
//! written, and when the client sends its next message. That is how `askd mcp` knows whether an answer has reached the
//! client. It changes no message.

use super::calls::Calls;
use super::questions::Questions;
use rmcp::model::{ClientNotification, ClientRequest, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A transport that notes which replies the client has.
#[derive(Debug)]
pub(super) struct AckTransport<T> {
    inner: T,
    calls: Arc<Calls>,
}

impl<T> AckTransport<T> {
    pub(super) fn new(inner: T, calls: Arc<Calls>) -> Self {
        Self { inner, calls }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for AckTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let replied = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let calls = Arc::clone(&self.calls);
        let sent = self.inner.send(item);
        async move {
            let sent = sent.await;
            if let Some(call) = replied {
                let written = sent.is_ok();
                calls.queue(move |questions| questions.replied(&call, written));
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.inner.receive().await;
        let (mut began, mut cancelled) = (None, None);
        match &message {
            None => {
                self.calls.queue(Questions::close);
                return None;
            }
            Some(JsonRpcMessage::Request(request)) => {
                let is_call = matches!(request.request, ClientRequest::CallToolRequest(_));
                began = is_call.then(|| request.id.clone());
            }
            Some(JsonRpcMessage::Notification(told)) => {
                if let ClientNotification::CancelledNotification(told) = &told.notification {
                    cancelled.clone_from(&told.params.request_id);
                }
            }
            Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => {}
        }
        self.calls.queue(move |questions| {
            questions.heard(cancelled.as_ref());
            if let Some(call) = began {
                questions.began(call);
            }
        });
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Whether the client has read all that was written to standard output, as far as the kernel can tell. `askd mcp` asks
/// when the client closes its end within the 10 s in which its next message would have told.
pub(super) fn stdout_was_read() -> bool {
    let Ok(output) = std::io::stdout().as_fd().try_clone_to_owned() else { return false };
    let output = File::from(output);
    let Ok(kind) = output.metadata().map(|metadata| metadata.file_type()) else { return false };
    if kind.is_fifo() {
        // Unread bytes stay in the pipe, even after the reader has closed it.
        return rustix::io::ioctl_fionread(&output).is_ok_and(|unread| unread == 0);
    }
    if kind.is_socket() {
        // A socket that is closed with unread bytes leaves an error at the other end.
        return UnixStream::from(OwnedFd::from(output)).take_error().is_ok_and(|error| error.is_none());
    }
    true
}
