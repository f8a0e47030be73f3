//! Single values of settings, each read with its limits. An error says what to write; its key is added where it is known.

use super::LogFormat;
use super::http::{is_loopback_url, url_host};
use super::mistakes::Mistakes;
use super::people::PushSettings;
use crate::ipc::default_data_dir;
use askd_core::{Responders, TimeoutPolicy};
use config::ValueKind;
use jiff::tz::TimeZone;
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};
use std::fmt::{self, Debug, Display};
use std::path::PathBuf;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Keys with values that are still to be read.
pub(super) type Table = config::Map<String, config::Value>;

/// No upper limit.
pub(super) const ANY: u64 = u64::MAX;

pub(super) fn data_dir<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    data_folder(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// The data folder that a text names; an empty one names the usual folder.
pub fn data_folder(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return default_data_dir(|name| std::env::var(name).ok()).map_err(|error| error.to_string());
    }
    if text.starts_with('~') {
        return Err(format!("{text:?}: only a shell expands ~; write the full path, like /home/ann/askd"));
    }
    std::path::absolute(text).map_err(|error| error.to_string())
}

pub(super) fn dir_mode<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let text = String::deserialize(from)?;
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o7777 && mode & 0o700 == 0o700);
    mode.ok_or_else(|| D::Error::custom(format!("{text:?} is not an octal mode like \"0770\" that the owner can use")))
}

pub(super) fn gid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(from)?;
    let id = (!text.is_empty()).then(|| text.parse());
    let why = format!("{text:?} is not a numeric group id like \"1500\" (the third field of: getent group {text})");
    id.transpose().map_err(|_| D::Error::custom(why))
}

/// A duration from `LEAST` to `MOST` seconds.
pub(super) fn seconds<'de, const LEAST: u64, const MOST: u64, D: Deserializer<'de>>(
    from: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let duration = humantime::parse_duration(&text)
        .map_err(|_| D::Error::custom(format!("{text:?} is not a duration like \"45s\", \"30m\" or \"24h\"")))?;
    let limit = |seconds| humantime::format_duration(Duration::from_secs(seconds));
    if duration < Duration::from_secs(LEAST) {
        Err(D::Error::custom(format!("{text:?} is too short; at least {}", limit(LEAST))))
    } else if duration > Duration::from_secs(MOST) {
        Err(D::Error::custom(format!("{text:?} is too long; at most {}", limit(MOST))))
    } else {
        Ok(duration)
    }
}

/// A duration of a second at least, or off.
pub(super) fn or_off<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    if humantime::parse_duration(&text).is_ok_and(|duration| duration.is_zero()) {
        return Err(D::Error::custom(format!("{text:?} is too short; at least 1s, or \"\" to turn it off")));
    }
    (!text.is_empty()).then(|| seconds::<1, ANY, _>(text.into_deserializer())).transpose()
}

/// The same, where zero stands for off.
pub(super) fn or_zero<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    let off = matches!(&*text, "" | "0" | "0s");
    if off { Ok(Duration::ZERO) } else { seconds::<1, ANY, _>(text.into_deserializer()) }
}

/// A number from `LEAST` to `MOST`.
pub(super) fn number<'de, const LEAST: u32, const MOST: u32, N, D>(from: D) -> Result<N, D::Error>
where
    N: TryFrom<u32, Error: Display>,
    D: Deserializer<'de>,
{
    let number = u32::deserialize(from)?;
    if (LEAST..=MOST).contains(&number) {
        return N::try_from(number).map_err(D::Error::custom);
    }
    let most = if MOST == u32::MAX { String::new() } else { format!(" and at most {MOST}") };
    Err(D::Error::custom(format!("{number} does not fit; it must be at least {LEAST}{most}")))
}

pub(super) fn timeout_policy<'de, D: Deserializer<'de>>(from: D) -> Result<TimeoutPolicy, D::Error> {
    let text = String::deserialize(from)?;
    let neither = || D::Error::custom(format!("{text:?} is neither return_cancel nor abort_task"));
    TimeoutPolicy::from_name(&text).ok_or_else(neither)
}

/// A list, or from the environment a text with commas.
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match TextOrList::deserialize(from)? {
        TextOrList::Text(text) => {
            text.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
        }
        TextOrList::List(list) => list,
    })
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a list of texts, like [\"a\", \"b\"]")]
enum TextOrList {
    Text(String),
    List(Vec<String>),
}

pub(super) fn responders<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Responders>, D::Error> {
    match TextOrList::deserialize(from)? {
        TextOrList::Text(word) if word == "anyone" => Ok(Some(Responders::Anyone)),
        TextOrList::Text(word) => Err(D::Error::custom(format!("{word:?} is neither \"anyone\" nor a list of ids"))),
        TextOrList::List(ids) if ids.is_empty() => {
            Err(D::Error::custom("the list is empty, so no one could answer; name at least one person"))
        }
        TextOrList::List(ids) => Ok(Some(Responders::Only(ids))),
    }
}

pub(super) fn log_filter<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    // A word that is no level would be a part of the program, and nothing else would be logged.
    let is_directive = |part: &str| part.contains('=') || part.trim().parse::<LevelFilter>().is_ok();
    if text.parse::<Targets>().is_ok() && text.split(',').all(is_directive) {
        return Ok(text);
    }
    let why = "is neither a level (error, warn, info, debug) nor a filter like \"askd=debug,info\"";
    Err(D::Error::custom(format!("{text:?} {why}")))
}

pub(super) fn log_format<'de, D: Deserializer<'de>>(from: D) -> Result<LogFormat, D::Error> {
    match &*String::deserialize(from)? {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(D::Error::custom(format!("{other:?} is neither text nor json"))),
    }
}

pub(super) fn push<'de, D: Deserializer<'de>>(from: D) -> Result<PushSettings, D::Error> {
    match &*String::deserialize(from)? {
        "off" => Ok(PushSettings::Off),
        "notice" => Ok(PushSettings::Notice),
        "text" => Ok(PushSettings::Text),
        other => Err(D::Error::custom(format!("{other:?} is none of off, notice and text"))),
    }
}

/// A time zone by its name, like `Europe/Berlin`.
pub(super) fn time_zone<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TimeZone>, D::Error> {
    let name = String::deserialize(from)?;
    let unknown = |_| D::Error::custom(format!("{name:?} is no time zone like \"Europe/Berlin\""));
    TimeZone::get(&name).map(Some).map_err(unknown)
}

/// The address of a platform's API, without a slash at the end. A token must not travel in the clear.
pub(super) fn api_url<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let url = String::deserialize(from)?.trim_end_matches('/').to_owned();
    if is_loopback_url(&url) || url.starts_with("https://") && url_host(&url).is_some() {
        return Ok(url);
    }
    let why = "is neither https://... nor http://127.0.0.1:<port>/... (plain http is for tests)";
    Err(D::Error::custom(format!("{url:?} {why}")))
}

/// An address of another server, without a slash at the end; empty: none.
pub(super) fn endpoint<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let url = String::deserialize(from)?.trim_end_matches('/').to_owned();
    if !url.is_empty() && url_host(&url).is_none() {
        return Err(D::Error::custom(format!("{url:?} is not a URL like http://127.0.0.1:4318")));
    }
    Ok(Some(url).filter(|url| !url.is_empty()))
}

/// A secret; an empty one is not given.
pub(super) fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<SecretString>::deserialize(from)?.filter(|secret| !secret.expose_secret().is_empty()))
}

/// A secret that the platform signs with, and while it is being replaced the one before it: both are good.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The one that askd itself uses.
    pub newest: SecretString,
    earlier: Option<SecretString>,
}

impl Secrets {
    /// The newest first.
    pub fn all(&self) -> impl Iterator<Item = &SecretString> {
        std::iter::once(&self.newest).chain(&self.earlier)
    }
}

impl Debug for Secrets {
    /// Not even how many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl PartialEq for Secrets {
    fn eq(&self, other: &Self) -> bool {
        self.all().map(SecretString::expose_secret).eq(other.all().map(SecretString::expose_secret))
    }
}

/// One secret, or two in a list. In a text, as a file or the environment has it, blanks or line ends are between them.
/// Empty ones are not given.
pub(super) fn secrets<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Secrets>, D::Error> {
    let given = match TextOrList::deserialize(from)? {
        TextOrList::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
        TextOrList::List(list) => list,
    };
    let mut given = given.into_iter().filter(|secret| !secret.is_empty()).map(SecretString::from);
    let secrets = given.next().map(|newest| Secrets { newest, earlier: given.next() });
    if given.next().is_some() {
        return Err(D::Error::custom("has more than two secrets: write the new one, then the one that it replaces"));
    }
    Ok(secrets)
}

/// Each can stand in a file of its own: `<key>_file`.
pub(super) const SECRETS: [(&str, &str); 9] = [
    ("slack", "bot_token"),
    ("slack", "signing_secret"),
    ("slack", "app_token"),
    ("whatsapp", "access_token"),
    ("whatsapp", "app_secret"),
    ("whatsapp", "verify_token"),
    ("web", "token"),
    ("postgres", "url"),
    ("postgres", "listen_url"),
];

/// Puts what stands in the file of a secret, `<key>_file`, in the place of the secret.
pub(super) fn read_secret_files(settings: &mut Table, mistakes: &mut Mistakes) {
    for (section, key) in SECRETS {
        let Some(ValueKind::Table(keys)) = settings.get_mut(section).map(|section| &mut section.kind) else { continue };
        read_secret_file(keys, section, key, mistakes);
        let Some(ValueKind::Array(people)) = keys.get_mut("people").map(|people| &mut people.kind) else { continue };
        for (place, person) in people.iter_mut().enumerate() {
            if let ValueKind::Table(keys) = &mut person.kind {
                read_secret_file(keys, &format!("{section}.people[{place}]"), key, mistakes);
            }
        }
    }
}

fn read_secret_file(keys: &mut Table, section: &str, key: &str, mistakes: &mut Mistakes) {
    let Some(file) = keys.remove(&format!("{key}_file")) else { return };
    let read = match file.into_string() {
        Ok(file) if file.is_empty() => return,
        Ok(file) => {
            std::fs::read_to_string(&file).map_err(|error| format!("cannot read {file}: {error}")).and_then(|text| {
                if text.trim().is_empty() { Err(format!("{file} is empty")) } else { Ok(text.trim().to_owned()) }
            })
        }
        Err(_) => Err("must be the path of a file".to_owned()),
    };
    match read {
        Ok(secret) => drop(keys.insert(key.to_owned(), secret.into())),
        Err(why) => mistakes.add(format!("{section}.{key}_file"), why),
    }
}
