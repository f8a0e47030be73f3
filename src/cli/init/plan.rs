//! The settings file of `askd init`: what is there, and what is to be added. Existing text is never changed.

use super::files;
use crate::cli::{Exit, USAGE, say};
use crate::host::settings::Settings;
use anyhow::Context as _;
use askd_core::Group;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const HEAD: &str = "# Settings of askd, begun by `askd init`. Every key and its default: config/default.toml. After a change:\n\
                    # askd check --config <this file>\n\n";

/// A settings file and what it will have in addition.
#[derive(Debug)]
pub(super) struct Plan {
    file: PathBuf,
    there: Option<String>,
    added: String,
}

impl Plan {
    pub(super) fn open(file: PathBuf) -> Result<Self, Exit> {
        let there = match std::fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Exit::new(USAGE, format!("cannot read {}: {error}", file.display()))),
        };
        let added = if there.is_none() { HEAD.to_owned() } else { String::new() };
        let plan = Self { file, there, added };
        // Mistakes that are there come first.
        if !plan.is_new() {
            plan.settings()?;
        }
        Ok(plan)
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) fn is_new(&self) -> bool {
        self.there.is_none()
    }

    /// The folder of the secrets.
    pub(super) fn secrets(&self) -> PathBuf {
        self.beside("secrets")
    }

    /// A file beside the settings.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.file.with_file_name(name)
    }

    pub(super) fn add(&mut self, text: &str) {
        self.added += text;
    }

    /// The settings with these lines more.
    pub(super) fn with(&self, more: &str) -> Result<Settings, String> {
        let text = [self.there.as_deref().unwrap_or_default(), &self.added, more].concat();
        // What a person typed stands in no file yet.
        let file = Some(&*self.file).filter(|_| more.is_empty());
        Settings::draft(file, text).map_err(|error| error.to_string())
    }

    pub(super) fn settings(&self) -> Result<Settings, Exit> {
        self.with("").map_err(|error| Exit::new(USAGE, error))
    }

    /// Whether the file has a section of this group.
    pub(super) fn names(&self, group: &Group) -> Result<bool, Exit> {
        Ok(self.settings()?.configured().any(|known| known == *group))
    }

    /// Writes what was added, if it fits what is there.
    pub(super) fn write(&mut self) -> Result<Settings, Exit> {
        let settings = self.settings()?;
        if !self.added.is_empty() {
            files::append(&self.file, &self.added)?;
            let what = if self.is_new() { "Wrote" } else { "Added to" };
            let file = std::path::absolute(&self.file).context("the settings file")?;
            say(&format!("{what} {}:\n\n{}", file.display(), self.added.trim_start_matches(HEAD).trim()))?;
        }
        Ok(settings)
    }
}
