//! Single values of settings: texts to durations, modes, ids and secrets, or what is wrong with them.

use super::{SettingsError, wrong};
use crate::ipc::default_data_dir;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) fn data_dir(text: &str) -> Result<PathBuf, SettingsError> {
    if text.is_empty() {
        return Ok(default_data_dir(|name| std::env::var(name).ok())?);
    }
    std::path::absolute(text).map_err(|error| wrong("data_dir", error.to_string()))
}

pub(super) fn dir_mode(text: &str) -> Result<u32, SettingsError> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777 && mode & 0o700 == 0o700);
    mode.ok_or_else(|| {
        wrong("dir_mode", format!("{text:?} is not an octal mode such as \"0770\" that the owner can use"))
    })
}

pub(super) fn gid(text: &str) -> Result<Option<u32>, SettingsError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| wrong("gid", format!("{text:?} is not a numeric group id")))
}

pub(super) fn duration(key: &str, text: &str, least: Duration) -> Result<Duration, SettingsError> {
    let duration = humantime::parse_duration(text)
        .map_err(|error| wrong(key, format!("{text:?} is not a duration like \"30m\" ({error})")))?;
    if duration < least {
        return Err(wrong(key, format!("{text:?} is too short; at least {}", humantime::format_duration(least))));
    }
    Ok(duration)
}

/// A duration of a second at least, or off.
pub(super) fn or_off(key: &str, text: &str) -> Result<Option<Duration>, SettingsError> {
    if text.is_empty() { Ok(None) } else { duration(key, text, Duration::from_secs(1)).map(Some) }
}

pub(super) fn between(key: &str, text: &str, least: u64, most: u64) -> Result<Duration, SettingsError> {
    let duration = duration(key, text, Duration::from_secs(least))?;
    let most = Duration::from_secs(most);
    if duration > most {
        return Err(wrong(key, format!("too long; at most {}", humantime::format_duration(most))));
    }
    Ok(duration)
}

pub(super) fn at_least_one(key: &str, value: u32) -> Result<u32, SettingsError> {
    if value > 0 { Ok(value) } else { Err(wrong(key, "has to be at least 1")) }
}

/// A secret, from its own file if one is named.
pub(crate) fn secret(
    key: &str,
    value: Option<SecretString>,
    file: Option<&Path>,
) -> Result<Option<SecretString>, SettingsError> {
    let Some(file) = file.filter(|file| !file.as_os_str().is_empty()) else {
        return Ok(value.filter(|value| !value.expose_secret().is_empty()));
    };
    let text = std::fs::read_to_string(file)
        .map_err(|error| wrong(format!("{key}_file"), format!("{}: {error}", file.display())))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(wrong(format!("{key}_file"), format!("{} is empty", file.display())));
    }
    Ok(Some(text.into()))
}

/// A list, or from the environment a text with commas.
pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        List(Vec<String>),
    }
    Ok(match Either::deserialize(deserializer)? {
        Either::Text(text) => {
            text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
        }
        Either::List(list) => list,
    })
}
