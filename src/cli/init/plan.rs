//! The settings file of `askd init`: what is there, and what is to be added. Existing text is never changed, but for empty
//! values of keys that are to be set.

use super::files;
use crate::cli::{Exit, USAGE, say};
use crate::host::settings::Settings;
use anyhow::Context as _;
use askd_core::Group;
use std::io::ErrorKind;
use std::path::PathBuf;
use toml::de::DeTable;

const HEAD: &str = "# Settings of askd, begun by `askd init`. Every key and its default: config/default.toml. After a change:\n\
                    # askd check --config <this file>\n\n";

/// A settings file and what it will have in addition.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) file: PathBuf,
    there: Option<String>,
    /// All that the file will hold.
    text: String,
    /// What of it is new.
    added: String,
}

/// A section of the settings with keys that are to be set, and what is said of them if the section is new.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) comment: &'a str,
    /// Each with its value as TOML has it.
    pub(super) keys: &'a [(&'a str, String)],
}

impl Section<'_> {
    /// The section as it stands in a file that has none.
    fn whole(&self) -> String {
        let lines: Vec<String> = self.keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        format!("\n[{}]\n{}{}", self.name, self.comment, lines.concat())
    }

    /// A text with these keys: in a section of their own, or in the one that is there.
    fn added_to(&self, text: &str) -> Result<String, String> {
        let (root, _) = DeTable::parse_recoverable(text);
        let Some((name, table)) = root.get_ref().iter().find(|(name, _)| name.get_ref() == self.name) else {
            return Ok(text.to_owned() + &self.whole());
        };
        let start = text[..name.span().start].rfind('\n').map_or(0, |at| at + 1);
        let header = text[start..].lines().next().unwrap_or_default();
        if !header.trim_start().starts_with('[') {
            return Err(format!("write the keys of {0} below a line [{0}], and run askd init again", self.name));
        }
        let keys = table.get_ref().as_table().into_iter().flat_map(|table| table.iter());
        let empty: Vec<_> = keys.filter(|(_, value)| value.get_ref().as_str() == Some("")).collect();
        let (mut edits, mut new) = (Vec::new(), Vec::new());
        for (key, value) in self.keys {
            match empty.iter().find(|(known, _)| known.get_ref() == key) {
                Some((_, place)) => edits.push((place.span(), value.clone())),
                None => new.push(format!("\n{key} = {value}")),
            }
        }
        let end = start + header.len();
        edits.push((end..end, new.concat()));
        // From the end, so that places stay where they are.
        edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
        let mut text = text.to_owned();
        for (place, value) in edits {
            text.replace_range(place, &value);
        }
        Ok(text)
    }
}

impl Plan {
    pub(super) fn open(file: PathBuf) -> Result<Self, Exit> {
        let there = match std::fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Exit::new(USAGE, format!("cannot read {}: {error}", file.display()))),
        };
        let added = if there.is_none() { HEAD.to_owned() } else { String::new() };
        let plan = Self { file, text: there.clone().unwrap_or_else(|| added.clone()), there, added };
        // Mistakes that are there come first.
        if !plan.is_new() {
            plan.settings()?;
        }
        Ok(plan)
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
        self.text += text;
        self.added += text;
    }

    /// Sets keys of a section.
    pub(super) fn set(&mut self, section: &Section<'_>) -> Result<(), Exit> {
        self.text = self.with_keys(section).map_err(|why| Exit::new(USAGE, why))?;
        self.added += &section.whole();
        Ok(())
    }

    fn with_keys(&self, section: &Section<'_>) -> Result<String, String> {
        section.added_to(&self.text).map_err(|why| format!("{}: {why}", self.file.display()))
    }

    /// The settings with these lines more. What a person typed stands in no file yet.
    pub(super) fn with(&self, more: &str) -> Result<Settings, String> {
        Settings::draft(None, self.text.clone() + more).map_err(|error| error.to_string())
    }

    /// The same with keys of a section.
    pub(super) fn trying(&self, name: &str, keys: &[(&str, String)]) -> Result<Settings, String> {
        let text = self.with_keys(&Section { name, comment: "", keys })?;
        Settings::draft(None, text).map_err(|error| error.to_string())
    }

    /// Refuses a section whose keys could not be written down, before a person is asked for them.
    pub(super) fn takes(&self, name: &str) -> Result<(), Exit> {
        let none = Section { name, comment: "", keys: &[] };
        self.with_keys(&none).map(drop).map_err(|why| Exit::new(USAGE, why))
    }

    /// The key under which a section has this value, or names its file.
    pub(super) fn key_of(&self, section: &str, value: &str) -> Option<String> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let (_, table) = root.get_ref().iter().find(|(name, _)| name.get_ref() == section)?;
        let has = |key: &str, text: Option<&str>| text != Some("") && key.strip_suffix("_file").unwrap_or(key) == value;
        let mut keys = table.get_ref().as_table()?.iter();
        let (key, _) = keys.find(|(key, kept)| has(key.get_ref(), kept.get_ref().as_str()))?;
        Some(key.get_ref().to_string())
    }

    /// Whether the file has such a section.
    pub(super) fn has(&self, section: &str) -> bool {
        DeTable::parse_recoverable(&self.text).0.get_ref().iter().any(|(name, _)| name.get_ref() == section)
    }

    pub(super) fn settings(&self) -> Result<Settings, Exit> {
        Settings::draft(Some(&self.file), self.text.clone()).map_err(|error| Exit::new(USAGE, error))
    }

    /// Whether the file has a section of this group.
    pub(super) fn names(&self, group: &Group) -> Result<bool, Exit> {
        Ok(self.settings()?.configured().any(|known| known == *group))
    }

    /// Writes what was added, if it fits what is there.
    pub(super) fn write(&mut self) -> Result<Settings, Exit> {
        let settings = self.settings()?;
        if !self.added.is_empty() {
            match self.text.strip_prefix(self.there.as_deref().unwrap_or_default()) {
                Some(more) => files::append(&self.file, more)?,
                None => files::rewrite(&self.file, &self.text)?,
            }
            let what = if self.is_new() { "Wrote" } else { "Added to" };
            let file = std::path::absolute(&self.file).context("the settings file")?;
            say(&format!("{what} {}:\n\n{}", file.display(), self.added.trim_start_matches(HEAD).trim()))?;
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_set_in_the_section_that_is_there_and_nothing_else_is_changed() {
        let keys = [("id", "\"1\"".to_owned()), ("token_file", "\"/a\"".to_owned())];
        let set = |text: &str| Section { name: "chat", comment: "# Why.\n", keys: &keys }.added_to(text);
        let whole = "\n[chat]\n# Why.\nid = \"1\"\ntoken_file = \"/a\"\n";
        for (before, after) in [
            ("a = 1\n", &*format!("a = 1\n{whole}")),
            (
                "[x]\n [ chat ] # [chat]\npace = 1\nid = \"\" # none\n[y]\nid = \"\"\n",
                "[x]\n [ chat ] # [chat]\ntoken_file = \"/a\"\npace = 1\nid = \"1\" # none\n[y]\nid = \"\"\n",
            ),
            ("a = '''\n[chat]\n'''\n[chat]", "a = '''\n[chat]\n'''\n[chat]\nid = \"1\"\ntoken_file = \"/a\""),
        ] {
            assert_eq!(set(before).unwrap(), after);
        }
        for elsewhere in ["chat.pace = 1\n", "chat = { pace = 1 }\n"] {
            let told = "write the keys of chat below a line [chat], and run askd init again";
            assert_eq!(set(elsewhere).unwrap_err(), told);
        }
    }
}
