//! A file in `state/channels/` that several tasks change at once: whoever wants it on stable storage
//! waits, and changes that come together share one write. What stands in it is its owner's business.

use crate::ipc::files::{Access, Dir, ReadError};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// None of these files comes near this.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct CoalescedFile {
    folder: Arc<Dir>,
    file: &'static str,
    changes: Mutex<u64>,
    written: tokio::sync::Mutex<u64>,
}

impl CoalescedFile {
    pub(super) fn open(state: &Path, file: &'static str) -> io::Result<Self> {
        let folder = Arc::new(Dir::open(state)?.ensure("channels", Access::PRIVATE)?);
        Ok(Self { folder, file, changes: Mutex::new(0), written: tokio::sync::Mutex::new(0) })
    }

    /// What stands in it, if it is there.
    pub(super) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match self.folder.read(self.file, MAX_BYTES) {
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(ReadError::Gone) => Ok(None),
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Moves it aside, because it is damaged.
    pub(super) fn set_aside(&self, error: &serde_json::Error) -> io::Result<()> {
        let file = self.file;
        tracing::error!(file, %error, "what the WhatsApp channel remembered is damaged; it was moved aside (.corrupt)");
        self.folder.rename(file, &format!("{file}.corrupt"))?;
        self.folder.sync()
    }

    /// A newer askd wrote it.
    pub(super) fn too_new(&self, found: u32, known: u32) -> io::Error {
        io::Error::other(format!(
            "{} has format {found}, this askd knows {known}: a newer askd wrote it; start that version again",
            self.file
        ))
    }

    /// What stands in it is not what it should say any more.
    pub(super) fn changed(&self) {
        *self.count() += 1;
    }

    fn count(&self) -> parking_lot::MutexGuard<'_, u64> {
        self.changes.lock()
    }

    /// Puts it on stable storage; returns at once if somebody else just did. `write` says what stands in it
    /// now.
    pub(super) async fn save<W>(&self, write: impl FnOnce() -> W) -> io::Result<()>
    where
        W: FnOnce() -> serde_json::Result<Vec<u8>> + Send + 'static,
    {
        let wanted = *self.count();
        let mut written = self.written.lock().await;
        if *written >= wanted {
            return Ok(());
        }
        let covers = *self.count();
        let (folder, file, bytes) = (Arc::clone(&self.folder), self.file, write());
        let replace = move || folder.replace(&format!(".tmp-{file}"), file, &bytes()?, Access::PRIVATE);
        tokio::task::spawn_blocking(replace).await.map_err(io::Error::other)??;
        *written = covers;
        Ok(())
    }
}
