//! JSON-RPC over lines. This module sorts incoming lines itself, so that a client hears what was wrong with its line:
//! -32700 for a line that is not JSON; -32602 for a call without `params`; -32600 for JSON that is not a message, or
//! for a batch in a revision without batches. Revision 2025-03-26 has batches: all replies to a batch go out in one
//! line.

use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{ClientNotification, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::Value;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;

/// The one revision in which a message may be a batch.
const WITH_BATCHES: &str = "2025-03-26";
/// The longest line, in bytes. A longer line is dropped.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Lines in and out.
#[derive(Debug)]
pub(super) struct Lines<R, W> {
    input: BufReader<R>,
    /// The part of the line that was read so far: a read may be cancelled at any moment.
    line: Vec<u8>,
    too_long: bool,
    /// Messages of a batch that have not been handed on yet.
    queue: VecDeque<RxJsonRpcMessage<RoleServer>>,
    output: Output<W>,
}

#[derive(Debug)]
struct Output<W> {
    writer: Arc<tokio::sync::Mutex<Option<W>>>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    revision: Option<String>,
    batches: Vec<Batch>,
}

/// A batch whose replies are gathered.
#[derive(Debug)]
struct Batch {
    waits_for: HashSet<RequestId>,
    replies: Vec<Value>,
    /// Whether the line with all of them was written; `None` until it is known.
    written: watch::Sender<Option<bool>>,
}

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Self { writer: Arc::clone(&self.writer), state: Arc::clone(&self.state) }
    }
}

impl<R: AsyncRead + Unpin, W> Lines<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        let output = Output { writer: Arc::new(tokio::sync::Mutex::new(Some(output))), state: Arc::default() };
        Self { input: BufReader::new(input), line: Vec::new(), too_long: false, queue: VecDeque::new(), output }
    }

    /// Waits for a whole line; `false` at the end of the input. Nothing is lost when the wait is cancelled.
    async fn next_line(&mut self) -> io::Result<bool> {
        loop {
            let there = self.input.fill_buf().await?;
            if there.is_empty() {
                return Ok(false);
            }
            let end = there.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(there.len(), |end| end + 1);
            self.too_long |= self.line.len() + taken > MAX_LINE;
            if self.too_long {
                self.line.clear();
            } else {
                self.line.extend_from_slice(&there[..taken]);
            }
            self.input.consume(taken);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

/// What a line holds, or what is wrong with it and which call that concerns.
type Heard = Result<Vec<RxJsonRpcMessage<RoleServer>>, (ErrorData, Option<RequestId>)>;

fn invalid(why: &'static str) -> ErrorData {
    ErrorData::invalid_request(why, None)
}

/// One message; `None` for an unknown notification.
fn message(value: Value) -> Result<Option<RxJsonRpcMessage<RoleServer>>, (ErrorData, Option<RequestId>)> {
    let id: Option<RequestId> = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    let method = value.get("method").and_then(Value::as_str);
    let is_notification = method.is_some() && value.get("id").is_none();
    if method == Some("tools/call") && id.is_some() && value.get("params").is_none() {
        return Err((ErrorData::invalid_params("tools/call needs params with the name of a tool", None), id));
    }
    match serde_json::from_value(value) {
        Ok(message) => Ok(Some(message)),
        Err(_) if is_notification => Ok(None),
        Err(_) => Err((invalid("not a message of MCP"), id)),
    }
}

impl State {
    fn hear(&mut self, line: &[u8]) -> Heard {
        let value = serde_json::from_slice::<Value>(line)
            .map_err(|error| (ErrorData::parse_error(format!("the line is no JSON: {error}"), None), None))?;
        match value {
            Value::Array(_) if self.revision.as_deref() != Some(WITH_BATCHES) => {
                Err((invalid("a batch is only taken under the revision 2025-03-26"), None))
            }
            Value::Array(messages) if messages.is_empty() => Err((invalid("an empty batch"), None)),
            Value::Array(messages) => Ok(self.batch(messages)),
            value => Ok(message(value)?.into_iter().collect()),
        }
    }

    /// Takes a batch apart. Each wrong message gets its reply at once; the other replies come later.
    fn batch(&mut self, values: Vec<Value>) -> Vec<RxJsonRpcMessage<RoleServer>> {
        let mut batch = Batch { waits_for: HashSet::new(), replies: Vec::new(), written: watch::Sender::new(None) };
        let mut messages = Vec::new();
        for value in values {
            match message(value) {
                Ok(found) => messages.extend(found),
                Err((error, id)) => {
                    let error: TxJsonRpcMessage<RoleServer> = JsonRpcMessage::error(error, id);
                    batch.replies.extend(serde_json::to_value(error).ok());
                }
            }
        }
        batch.waits_for.extend(messages.iter().filter_map(|message| match message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        }));
        self.batches.push(batch);
        messages
    }

    /// The batch that has all its replies.
    fn complete(&mut self) -> Option<Batch> {
        let at = self.batches.iter().position(|batch| batch.waits_for.is_empty())?;
        Some(self.batches.swap_remove(at))
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Output<W> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    async fn write(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut writer = self.writer.lock().await;
        let Some(writer) = writer.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
        writer.write_all(&line).await?;
        writer.flush().await
    }

    /// Sends a message, or adds a reply to its batch; such a reply is sent with the batch.
    async fn send(self, item: TxJsonRpcMessage<RoleServer>) -> io::Result<()> {
        let id = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let value = serde_json::to_value(&item)?;
        let gathered = {
            let mut state = self.lock();
            if let Some(revision) = value["result"]["protocolVersion"].as_str().filter(|_| state.revision.is_none()) {
                state.revision = Some(revision.to_owned());
            }
            let batch =
                state.batches.iter_mut().find(|batch| id.as_ref().is_some_and(|id| batch.waits_for.contains(id)));
            batch.map(|batch| {
                batch.waits_for.retain(|known| Some(known) != id.as_ref());
                batch.replies.push(value);
                batch.written.subscribe()
            })
        };
        let Some(mut written) = gathered else { return self.write(&item).await };
        self.finish_batches().await;
        let written = written.wait_for(Option::is_some).await.is_ok_and(|written| *written == Some(true));
        if written { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    /// Writes the replies of complete batches.
    async fn finish_batches(&self) {
        loop {
            let Some(batch) = self.lock().complete() else { return };
            // A batch of notifications has no reply.
            let written = batch.replies.is_empty() || self.write(&batch.replies).await.is_ok();
            batch.written.send_replace(Some(written));
        }
    }

    /// Notes that the client cancelled a call: it gets no reply, and its batch is complete without it.
    fn taken_back(&self, id: &RequestId) {
        for batch in &mut self.lock().batches {
            batch.waits_for.remove(id);
        }
    }

    /// The same in the background: receiving may be cancelled at any moment, and must not leave half a line behind.
    fn finish_in_background(&self) {
        let output = self.clone();
        tokio::spawn(async move { output.finish_batches().await });
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.output.clone().send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(message) = self.queue.pop_front() {
                if let JsonRpcMessage::Notification(told) = &message
                    && let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.output.taken_back(id);
                    self.output.finish_in_background();
                }
                return Some(message);
            }
            match self.next_line().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    tracing::error!(%error, "standard input cannot be read");
                    return None;
                }
            }
            let line = std::mem::take(&mut self.line);
            let line = line.strip_prefix(b"\xef\xbb\xbf".as_slice()).unwrap_or(&line).trim_ascii();
            let too_long = std::mem::take(&mut self.too_long);
            if line.is_empty() && !too_long {
                continue;
            }
            let heard = if too_long {
                Err((invalid("the line is longer than 16 MiB"), None))
            } else {
                self.output.lock().hear(line)
            };
            match heard {
                Ok(messages) => self.queue.extend(messages),
                Err((error, id)) => {
                    let told = self.output.clone().send(JsonRpcMessage::error(error, id));
                    tokio::spawn(async move { drop(told.await) });
                }
            }
            self.output.finish_in_background();
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.writer.lock().await.take());
        Ok(())
    }
}
