//! Stands between the protocol and the pipe and tells [`Calls`] what passes: which calls came, which
//! replies were written, and when the client says its next word. Only so can be known whether an
//! answer has reached anybody. It changes no message.

use super::calls::Calls;
use rmcp::model::{ClientNotification, ClientRequest, JsonRpcMessage};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A transport that is listened to.
#[derive(Debug)]
pub(super) struct Witness<T> {
    inner: T,
    calls: Arc<Calls>,
}

impl<T> Witness<T> {
    pub(super) fn new(inner: T, calls: Arc<Calls>) -> Self {
        Self { inner, calls }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Witness<T> {
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
                calls.replied(&call, sent.is_ok());
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.inner.receive().await;
        match &message {
            None => self.calls.close(),
            Some(JsonRpcMessage::Request(request)) => {
                self.calls.heard(None);
                if matches!(request.request, ClientRequest::CallToolRequest(_)) {
                    self.calls.began(request.id.clone());
                }
            }
            Some(JsonRpcMessage::Notification(told)) => match &told.notification {
                ClientNotification::CancelledNotification(cancelled) => {
                    self.calls.heard(cancelled.params.request_id.as_ref());
                }
                _ => self.calls.heard(None),
            },
            Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) => self.calls.heard(None),
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Whether the client has read all that was written, as far as the kernel can tell: asked when it has
/// closed its end within the 10 s in which its next word would have told.
pub(super) fn has_been_read() -> bool {
    let Ok(output) = std::io::stdout().as_fd().try_clone_to_owned() else { return false };
    let output = File::from(output);
    let Ok(kind) = output.metadata().map(|metadata| metadata.file_type()) else { return false };
    if kind.is_fifo() {
        // What is unread stays in the pipe, also when nobody reads any more.
        return rustix::io::ioctl_fionread(&output).is_ok_and(|unread| unread == 0);
    }
    if kind.is_socket() {
        // A socket that is closed with something unread in it leaves an error at the other end.
        return UnixStream::from(OwnedFd::from(output)).take_error().is_ok_and(|error| error.is_none());
    }
    true
}
