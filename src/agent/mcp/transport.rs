//! JSON-RPC over lines, as a transport of rmcp that does three things more. A client hears what was wrong with its line:
//! -32700 for a line that is not JSON; -32602 for a call without `params`; -32600 for JSON that is not a message, or for a
//! batch in a revision without batches. Revision 2025-03-26 has batches: all replies to a batch go out in one line. And
//! [`Calls`] is told what passes, which messages came and which replies were written: that is how `askd mcp` knows whether
//! an answer has reached the client.

use super::calls::Calls;
use super::questions::Questions;
use parking_lot::Mutex;
use rmcp::model::{ClientNotification, ClientRequest, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::io::{StdioReader, StdioWriter, stdio_pipes};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

/// The one revision in which a message may be a batch.
const WITH_BATCHES: &str = "2025-03-26";
/// The longest line, in bytes. A longer line is dropped.
const MAX_LINE: usize = 16 * 1024 * 1024;

type Received = RxJsonRpcMessage<RoleServer>;
type Sent = TxJsonRpcMessage<RoleServer>;
/// What is wrong with a line or a message, and which call that concerns.
type Wrong = (ErrorData, Option<RequestId>);

/// The client at standard input and output.
#[derive(Debug)]
pub(super) struct Client {
    input: BufReader<StdioReader>,
    /// The part of the line that was read so far: a read may be cancelled at any moment.
    line: Vec<u8>,
    too_long: bool,
    /// Messages of a line that have not been handed on yet.
    messages: VecDeque<Received>,
    output: Arc<Output>,
}

#[derive(Debug)]
struct Output {
    writer: tokio::sync::Mutex<Option<StdioWriter>>,
    state: Mutex<State>,
    calls: Arc<Calls>,
}

#[derive(Debug, Default)]
struct State {
    revision: Option<String>,
    batches: Vec<Batch>,
}

/// The id of a message that cannot be read as a whole.
#[derive(Deserialize)]
struct Id {
    id: Option<RequestId>,
}

/// A batch whose replies are gathered.
#[derive(Debug, Default)]
struct Batch {
    waits_for: HashSet<RequestId>,
    replies: Vec<Sent>,
}

fn invalid(why: &'static str, id: Option<RequestId>) -> Wrong {
    (ErrorData::invalid_request(why, None), id)
}

/// The id of the message that this one replies to.
fn replied(item: &Sent) -> Option<RequestId> {
    match item {
        JsonRpcMessage::Response(response) => Some(response.id.clone()),
        JsonRpcMessage::Error(error) => error.id.clone(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

/// One message; `None` for an unknown notification.
fn message(value: Value) -> Result<Option<Received>, Wrong> {
    let id: Option<RequestId> = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    let method = value.get("method").and_then(Value::as_str);
    let is_notification = method.is_some() && value.get("id").is_none();
    let message = match &id {
        // By its own type: rmcp would try all the others before.
        Some(id) if method == Some("tools/call") => {
            let (name, arguments) = (&value["params"]["name"], &value["params"]["arguments"]);
            if !name.is_string() || !(arguments.is_object() || arguments.is_null()) {
                return Err((crate::mcp::no_call(), Some(id.clone())));
            }
            serde_json::from_value(value)
                .map(|call| JsonRpcMessage::request(ClientRequest::CallToolRequest(call), id.clone()))
        }
        _ => serde_json::from_value(value),
    };
    match message {
        Ok(message) => Ok(Some(message)),
        Err(_) if is_notification => Ok(None),
        Err(_) => Err(invalid("not a message of MCP", id)),
    }
}

impl State {
    /// The messages of a line.
    fn hear(&mut self, line: &[u8]) -> Result<Vec<Received>, Wrong> {
        let value = serde_json::from_slice::<Value>(line).map_err(|error| {
            // Half of an emoji, say: the rest of the line still says which call gets no other reply.
            let id = serde_json::from_slice::<Id>(line).ok().and_then(|known| known.id);
            (ErrorData::parse_error(format!("the line is no JSON: {error}"), None), id)
        })?;
        match value {
            Value::Array(_) if self.revision.as_deref() != Some(WITH_BATCHES) => {
                Err(invalid("a batch is only taken under the revision 2025-03-26", None))
            }
            Value::Array(values) if values.is_empty() => Err(invalid("an empty batch", None)),
            Value::Array(values) => Ok(self.batch(values)),
            value => Ok(message(value)?.into_iter().collect()),
        }
    }

    /// Keeps a reply to a message of a batch, and returns any other message.
    fn gather(&mut self, item: Sent) -> Option<Sent> {
        if self.revision.is_none() {
            let welcome = serde_json::to_value(&item).unwrap_or_default();
            self.revision = welcome["result"]["protocolVersion"].as_str().map(str::to_owned);
        }
        let Some(id) = replied(&item) else { return Some(item) };
        match self.batches.iter_mut().find_map(|batch| batch.waits_for.remove(&id).then_some(&mut batch.replies)) {
            Some(replies) => replies.push(item),
            None => return Some(item),
        }
        None
    }

    /// Takes a batch apart. Each wrong message has its reply at once; the other replies come later.
    fn batch(&mut self, values: Vec<Value>) -> Vec<Received> {
        let (mut batch, mut messages) = (Batch::default(), Vec::new());
        for value in values {
            match message(value) {
                Ok(found) => messages.extend(found),
                Err((error, id)) => batch.replies.push(JsonRpcMessage::error(error, id)),
            }
        }
        batch.waits_for.extend(messages.iter().filter_map(|message| match message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        }));
        self.batches.push(batch);
        messages
    }
}

impl Output {
    /// Sends a message; a reply to a message of a batch is sent with the batch.
    async fn send(&self, item: Sent) -> io::Result<()> {
        let item = self.state.lock().gather(item);
        match item {
            Some(item) => self.write(&item, replied(&item)).await,
            None => self.finish_batches().await,
        }
    }

    /// Writes the replies of the batches that have all of theirs.
    async fn finish_batches(&self) -> io::Result<()> {
        let is_complete = |batch: &mut Batch| batch.waits_for.is_empty();
        let complete: Vec<Batch> = self.state.lock().batches.extract_if(.., is_complete).collect();
        // A batch of notifications has no reply.
        for Batch { replies, .. } in complete.iter().filter(|batch| !batch.replies.is_empty()) {
            self.write(replies, replies.iter().filter_map(replied)).await?;
        }
        Ok(())
    }

    /// Writes a line that replies to these calls.
    async fn write(&self, line: &impl Serialize, calls: impl IntoIterator<Item = RequestId>) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        let written = async {
            let mut writer = self.writer.lock().await;
            let Some(writer) = writer.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            writer.write_all(&line).await?;
            writer.flush().await
        };
        let written = written.await;
        for call in calls {
            let is_written = written.is_ok();
            self.calls.queue(move |questions| questions.replied(&call, is_written));
        }
        written
    }

    /// A message goes on to the server. A call that the client cancelled gets no reply, and its batch is complete
    /// without it.
    fn heard(&self, message: &Received) {
        let cancelled = match message {
            JsonRpcMessage::Notification(told) => match &told.notification {
                ClientNotification::CancelledNotification(told) => told.params.request_id.clone(),
                _ => None,
            },
            _ => None,
        };
        if let Some(id) = &cancelled {
            for batch in &mut self.state.lock().batches {
                batch.waits_for.remove(id);
            }
        }
        self.calls.queue(move |questions| questions.heard(cancelled.as_ref()));
    }
}

impl Client {
    pub(super) fn new(calls: Arc<Calls>) -> Self {
        let (input, output) = stdio_pipes();
        let output = Output { writer: tokio::sync::Mutex::new(Some(output)), state: Mutex::default(), calls };
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            too_long: false,
            messages: VecDeque::new(),
            output: Arc::new(output),
        }
    }

    /// Waits for the end of a line; `false` at the end of the input. Nothing is lost when the wait is cancelled.
    async fn next_line(&mut self) -> io::Result<bool> {
        loop {
            let mut rest = (&mut self.input).take((MAX_LINE - self.line.len()) as u64);
            let read = rest.read_until(b'\n', &mut self.line).await?;
            if read == 0 || self.line.ends_with(b"\n") {
                return Ok(read > 0);
            }
            if self.line.len() == MAX_LINE {
                self.too_long = true;
                self.line.clear();
            }
        }
    }

    /// Hears the line that was read. Replies are written in the background: receiving may be cancelled at any moment,
    /// and must not leave half a line behind.
    fn hear_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(&line).trim_ascii();
        let heard = if std::mem::take(&mut self.too_long) {
            Err(invalid("the line is longer than 16 MiB", None))
        } else if line.is_empty() {
            return;
        } else {
            self.output.state.lock().hear(line)
        };
        match heard {
            Ok(messages) => self.messages.extend(messages),
            Err((error, id)) => {
                let output = Arc::clone(&self.output);
                tokio::spawn(async move { output.send(JsonRpcMessage::error(error, id)).await });
            }
        }
    }
}

impl Transport<RoleServer> for Client {
    type Error = io::Error;

    fn send(&mut self, item: Sent) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = Arc::clone(&self.output);
        async move { output.send(item).await }
    }

    async fn receive(&mut self) -> Option<Received> {
        loop {
            if !self.output.state.lock().batches.is_empty() {
                // One may be complete without a reply from the server.
                let output = Arc::clone(&self.output);
                tokio::spawn(async move { output.finish_batches().await });
            }
            if let Some(message) = self.messages.pop_front() {
                self.output.heard(&message);
                return Some(message);
            }
            match self.next_line().await {
                Ok(true) => self.hear_line(),
                Ok(false) => break,
                Err(error) => {
                    tracing::error!(%error, "standard input cannot be read");
                    break;
                }
            }
        }
        self.output.calls.queue(Questions::close);
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.writer.lock().await.take());
        Ok(())
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
