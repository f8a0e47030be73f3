//! A client that has nothing but files: it asks and takes the responses.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::files;
use crate::history::History;

/// The agent of one group.
pub(crate) struct Agent {
    folder: PathBuf,
    /// Set if a disk may lose unsynced data: its files', or that of askd's records.
    durable: bool,
    taken: HashSet<String>,
    waiting: HashSet<String>,
    /// Written, but perhaps not on stable storage.
    unsure: Vec<(String, Value)>,
    count: usize,
}

impl Agent {
    pub(crate) fn new(data: &Path, group: &str, durable: bool) -> Self {
        let folder = data.join("ipc").join(group);
        let (taken, waiting) = Default::default();
        Self { folder, durable, taken, waiting, unsure: Vec::new(), count: 0 }
    }

    /// How many requests have no response yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Asks which way to go. Returns the request's id, which is made from the group's name.
    pub(crate) fn ask(
        &mut self,
        history: &Mutex<History>,
        labels: impl Fn(&str) -> Vec<String>,
        words: bool,
    ) -> String {
        self.ask_so(history, labels, words, ("", None))
    }

    /// The same; the id ends so, and people have so many milliseconds.
    pub(crate) fn ask_so(
        &mut self,
        history: &Mutex<History>,
        labels: impl Fn(&str) -> Vec<String>,
        words: bool,
        (end, timeout): (&str, Option<u64>),
    ) -> String {
        self.count += 1;
        let group = self.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let request = format!("{group}-{}{end}", self.count);
        let question = json!({"question": text(&request), "options": labels(&request), "custom": words});
        let mut content = json!({"type": "ask_user:ask", "request_id": request, "questions": [question]});
        lock(history).asked(&request);
        if let Some(timeout) = timeout {
            content["timeoutMs"] = json!(timeout);
            lock(history).asked_for_a_moment(&request);
        }
        self.waiting.insert(request.clone());
        if !self.put(&request, &content) {
            self.unsure.push((request.clone(), content));
        }
        request
    }

    /// The requests without a response, each with what its status file says, if there is one.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = (&String, Vec<u8>)> {
        let status = |request: &String| std::fs::read(self.folder.join("responses").join(format!("{request}.status")));
        self.waiting.iter().filter_map(move |request| Some((request, status(request).ok()?)))
    }

    /// Writes a request. Returns whether it is on stable storage.
    fn put(&self, request: &str, content: &Value) -> bool {
        let (tasks, name) = (self.folder.join("tasks"), format!("{request}.json"));
        files::publish(&tasks, &name, content.to_string().as_bytes(), self.durable).is_ok()
    }

    /// Takes the responses that have come, and writes requests again that may have been lost before they were durable.
    pub(crate) fn take(&mut self, history: &Mutex<History>) {
        let responses = self.folder.join("responses");
        for name in files::names(&responses) {
            let Some(request) = name.strip_suffix(".json").filter(|name| !name.starts_with('.')) else { continue };
            let Ok(bytes) = std::fs::read(responses.join(&name)) else { continue };
            // After a loss of power askd tells again what it does not know to be taken, and it has to tell the same.
            if self.taken.contains(request) && !self.durable {
                lock(history).again(request);
            } else {
                lock(history).response(request, &bytes);
            }
            if std::fs::remove_file(responses.join(&name)).is_err() {
                continue;
            }
            self.waiting.remove(request);
            self.taken.insert(request.to_owned());
        }
        let unsure = std::mem::take(&mut self.unsure);
        let still = unsure.into_iter().filter(|(request, _)| self.waiting.contains(request));
        self.unsure = still.filter(|(request, content)| !self.put(request, content)).collect();
    }
}

/// What is asked.
pub(crate) fn text(request: &str) -> String {
    format!("Case {request}: which way?")
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
