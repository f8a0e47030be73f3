//! What is wrong with the settings: every mistake at once, each with its place and with what to write instead.
//!
//! serde stops at the first error. So the key that it names is taken out, the default put in its place, and the rest read
//! again, until it can be read. Knows the sources by their texts only; it opens nothing.

use super::values::{SECRETS, Table};
use super::{DEFAULTS, Shape, group};
use config::{Config, ConfigError, File, FileFormat, Value, ValueKind};
use serde_path_to_error::Segment;
use std::collections::BTreeSet;
use std::fmt;
use toml::de::{DeTable, DeValue};

/// More than anyone reads at a time.
const MOST: usize = 100;

/// What is wrong with the settings, one sentence for each mistake.
#[derive(Debug)]
pub struct SettingsError(Vec<String>);

impl std::error::Error for SettingsError {}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [one] => f.write_str(one),
            all => write!(f, "{} mistakes in the settings:\n  {}", all.len(), all.join("\n  ")),
        }
    }
}

/// A text with settings, and what it is called.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
}

impl Source {
    /// What TOML says of it.
    pub(super) fn check(&self, mistakes: &mut Mistakes) {
        let (_, errors) = DeTable::parse_recoverable(&self.text);
        for error in errors {
            let line = error.span().map_or(1, |span| self.line(span.start));
            mistakes.note((0, line), &format!("this is not TOML: {} ({}, line {line})", error.message(), self.name));
        }
    }

    fn line(&self, at: usize) -> usize {
        self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
    }

    /// How much of a path stands here, and the line of the last part that does.
    fn find(&self, path: &[Segment]) -> (usize, usize) {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        let (mut depth, mut at, mut value) = (0, 0, &DeValue::Table(root.into_inner()));
        for segment in path {
            let found = match segment {
                Segment::Map { key } => value.as_table().and_then(|table| {
                    let entry = table.iter().find(|(name, _)| name.get_ref() == key)?;
                    Some((entry.0.span().start, entry.1.get_ref()))
                }),
                Segment::Seq { index } => value.get(*index).map(|item| (item.span().start, item.get_ref())),
                Segment::Enum { .. } | Segment::Unknown => None,
            };
            let Some(found) = found else { break };
            (at, value) = found;
            depth += 1;
        }
        (depth, self.line(at))
    }
}

/// The mistakes that were found, and where to look for their places.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    sources: Vec<Source>,
    /// The names of environment variables with settings.
    variables: Vec<String>,
    keys: BTreeSet<String>,
    found: BTreeSet<((usize, usize), String)>,
}

impl Mistakes {
    pub(super) fn of(sources: Vec<Source>, variables: Vec<String>) -> Self {
        Self { sources, variables, ..Self::default() }
    }

    fn note(&mut self, place: (usize, usize), told: &str) {
        if self.found.len() < MOST {
            self.found.insert((place, told.to_owned()));
        }
    }

    /// A file that cannot be read, or what cannot be said of one key.
    pub(super) fn at_large(&mut self, told: &str) {
        self.note((0, 0), told);
    }

    /// The first mistake of a key is the one that is told: others may follow from it.
    pub(super) fn add(&mut self, key: impl Into<String>, why: impl fmt::Display) {
        let key = key.into();
        let follows = self.keys.contains(&format!("{key}_file"));
        if !follows && self.keys.insert(key.clone()) {
            self.tell(&path(&key), &key, &why.to_string());
        }
    }

    /// Whether a key below this one was wrong, so that what follows from it need not be told.
    pub(super) fn any_in(&self, section: &str) -> bool {
        self.keys.iter().any(|key| key.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')))
    }

    /// The settings, if nothing is wrong.
    pub(super) fn none<T>(self, settings: T) -> Result<T, SettingsError> {
        if self.found.is_empty() { Ok(settings) } else { Err(self.into()) }
    }

    /// The shape of the settings, without what is wrong in them.
    pub(super) fn read(&mut self, mut table: Table) -> Option<Shape> {
        group::refuse_misplaced(&mut table, self);
        self.refuse_lists(&mut table);
        let mut replaced = BTreeSet::new();
        loop {
            let mut whole = table.clone();
            group::inherit(&mut whole);
            let error = match serde_path_to_error::deserialize(Value::from(whole)) {
                Ok(shape) => return Some(shape),
                Err(error) => error,
            };
            let mut path: Vec<Segment> = error.path().iter().cloned().collect();
            let error = innermost(error.into_inner());
            // What a group inherited is wrong where it stands.
            if at(&mut table, &path).is_none()
                && let Some(last @ Segment::Map { .. }) = path.last().cloned()
            {
                path = vec![Segment::Map { key: "asks".to_owned() }, last];
            }
            let (key, why) = (spelled(&path), error.to_string());
            if let ConfigError::NotFound(named) = error {
                let field = named.rsplit(['.', ']']).next().unwrap_or_default();
                self.add(format!("{key}.{field}").trim_start_matches('.'), format!("missing: write {field} = ..."));
            } else if let Some(names) = why.strip_prefix("unknown field ") {
                self.unknown(&path, names);
            } else if !self.any_in(&key) {
                self.add(&*key, plainly(&why));
            }
            if self.found.len() >= MOST || !take_out(&mut table, &path, &mut replaced) {
                return None;
            }
        }
    }

    /// A list in place of a section would be read as the values of its keys.
    fn refuse_lists(&mut self, table: &mut Table) {
        for (key, value) in table.iter_mut().filter(|(_, value)| matches!(value.kind, ValueKind::Array(_))) {
            if let Some(default @ Value { kind: ValueKind::Table(_), .. }) = defaults().remove(key) {
                self.add(&**key, "must be a table of keys, not a list");
                *value = default;
            }
        }
    }

    fn unknown(&mut self, path: &[Segment], names: &str) {
        let Some((Segment::Map { key }, parent)) = path.split_last() else { return };
        let known = names.split('`').skip(3).step_by(2).map(str::to_owned);
        let section = spelled(parent);
        let files = SECRETS.iter().filter(|(of, _)| *of == section).map(|(_, secret)| format!("{secret}_file"));
        let known: Vec<String> = known.chain(files).collect();
        let variable = self.variable(&spelled(path));
        let name = |known: &str| match &variable {
            Some(_) => variable_of(&spelled(&[parent, &[Segment::Map { key: known.to_owned() }]].concat())),
            None => format!("{known:?}"),
        };
        let hint = match (nearest(key, &known), belongs(key)) {
            (Some(meant), _) => format!("Did you mean {}?", name(meant)),
            (None, Some(place)) => place,
            (None, None) => format!("Known keys: {}", known.join(", ")),
        };
        self.keys.insert(spelled(path));
        let what = if variable.is_some() { "unknown key".to_owned() } else { format!("unknown key {key:?}") };
        self.tell(path, &section, &format!("{what}. {hint}"));
    }

    /// One mistake, with its place: the environment, else the last file that has most of the path.
    fn tell(&mut self, path: &[Segment], key: &str, why: &str) {
        if let Some(variable) = self.variable(&spelled(path)) {
            return self.note((usize::MAX, 0), &format!("{variable}: {why}"));
        }
        let all = self.sources.iter().enumerate().map(|(index, source)| (source.find(path), index));
        let place = all
            .max_by_key(|((depth, _), index)| (*depth, *index))
            .filter(|((depth, _), index)| *depth > 0 && !self.sources[*index].name.is_empty());
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        match place {
            Some(((_, line), index)) => {
                let told = format!("{key}{why} ({}, line {line})", self.sources[index].name);
                self.note((index, line), &told);
            }
            None => self.note((usize::MAX, 1), &format!("{key}{why}")),
        }
    }

    fn variable(&self, key: &str) -> Option<String> {
        let name = variable_of(key);
        self.variables.iter().find(|variable| variable.eq_ignore_ascii_case(&name)).cloned()
    }
}

impl From<Mistakes> for SettingsError {
    fn from(mistakes: Mistakes) -> Self {
        Self(mistakes.found.into_iter().map(|(_, told)| told).collect())
    }
}

/// The known word that was most likely meant.
pub(super) fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a String> {
    let distance = |known: &&String| strsim::damerau_levenshtein(known, word);
    known.iter().min_by_key(distance).filter(|known| distance(known) <= 2.min(word.len() / 2))
}

/// Where a key of this name has its place.
fn belongs(key: &str) -> Option<String> {
    let has = |section: &str, table: &DeTable<'_>| {
        table.iter().any(|(name, _)| name.get_ref() == key)
            || SECRETS.iter().any(|(of, secret)| *of == section && key.trim_end_matches("_file") == *secret)
    };
    let (defaults, _) = DeTable::parse_recoverable(DEFAULTS);
    if defaults.get_ref().iter().any(|(name, value)| name.get_ref() == key && !value.get_ref().is_table()) {
        return Some("It belongs at the top of the file, above the first [section]".to_owned());
    }
    let sections = defaults.get_ref().iter().filter_map(|(name, value)| Some((name, value.get_ref().as_table()?)));
    let places =
        sections.filter(|(name, table)| has(name.get_ref(), table)).map(|(name, _)| format!("[{}]", name.get_ref()));
    let places = places.collect::<Vec<_>>().join(" or ");
    (!places.is_empty()).then(|| format!("It belongs in {places}"))
}

fn variable_of(key: &str) -> String {
    format!("ASKD__{}", key.replace('.', "__").to_uppercase())
}

/// A key as people write it, as a path.
fn path(key: &str) -> Vec<Segment> {
    let parts = key.split(['.', '[']).filter(|part| !part.is_empty());
    let index = |part: &str| part.strip_suffix(']').and_then(|number| number.parse().ok());
    parts
        .map(|part| index(part).map_or_else(|| Segment::Map { key: part.to_owned() }, |index| Segment::Seq { index }))
        .collect()
}

/// A path as people write it.
fn spelled(path: &[Segment]) -> String {
    let parts = path.iter().map(|segment| match segment {
        Segment::Map { key } => format!(".{key}"),
        other => other.to_string(),
    });
    parts.collect::<String>().trim_start_matches('.').to_owned()
}

/// `config` adds key and origin to what was said; both are told in another way.
fn innermost(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::At { error, .. } => innermost(*error),
        ConfigError::Type { unexpected, expected, .. } => {
            ConfigError::Message(format!("invalid type: {unexpected}, expected {expected}"))
        }
        other => other,
    }
}

/// What serde says of a value of the wrong type, for people.
fn plainly(why: &str) -> String {
    let Some((given, wanted)) = why.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    else {
        return why.to_owned();
    };
    let wanted = match wanted {
        "a map" => "a table of keys",
        "a sequence" => "a list",
        _ if wanted.starts_with("struct ") => "a table of keys",
        _ => wanted,
    };
    // A string may be a secret.
    let given = match given {
        _ if given.starts_with("string ") => "a string".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        _ => given.replace('`', ""),
    };
    format!("must be {wanted}, not {given}")
}

fn at<'a>(table: &'a mut Table, path: &[Segment]) -> Option<&'a mut Value> {
    let (Segment::Map { key }, rest) = path.split_first()? else { return None };
    rest.iter().try_fold(table.get_mut(key)?, |value, segment| match (&mut value.kind, segment) {
        (ValueKind::Table(table), Segment::Map { key }) => table.get_mut(key),
        (ValueKind::Array(items), Segment::Seq { index }) => items.get_mut(*index),
        _ => None,
    })
}

/// Takes out what stands at a path, and puts the default there. An item of a list goes with its list's order kept: a route
/// in the inbox is right. Nothing is `replaced` twice, so that in the end everything wrong is out.
fn take_out(table: &mut Table, path: &[Segment], replaced: &mut BTreeSet<String>) -> bool {
    let Some((last, parent)) = path.split_last() else { return false };
    let is_first = replaced.insert(spelled(path));
    if let Segment::Seq { .. } = last {
        if !is_first || !matches!(parent.last(), Some(Segment::Map { key }) if key == "routes") {
            // No replacement for this item is sure to be right, so the whole list goes.
            return take_out(table, parent, replaced);
        }
        let Some(item) = at(table, path) else { return false };
        let inbox = [("channel".to_owned(), Value::from("web"))];
        item.kind = ValueKind::Table(inbox.into_iter().collect());
        return true;
    }
    let Segment::Map { key } = last else { return false };
    let holder = if parent.is_empty() {
        Some(table)
    } else {
        at(table, parent)
            .and_then(|value| if let ValueKind::Table(table) = &mut value.kind { Some(table) } else { None })
    };
    let Some(holder) = holder else { return false };
    if holder.remove(key).is_none() {
        return false;
    }
    if is_first && let Some(default) = at(&mut defaults(), path) {
        holder.insert(key.clone(), default.clone());
    }
    true
}

fn defaults() -> Table {
    let built = Config::builder().add_source(File::from_str(DEFAULTS, FileFormat::Toml)).build();
    built.and_then(|built| built.cache.into_table()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_and_is_still_wrong_goes() {
        let group = |routes: Vec<Table>| Value::from(Table::from([("routes".to_owned(), Value::from(routes))]));
        let mut table = Table::from([("groups".to_owned(), group(vec![Table::new()]))]);
        let (wrong, mut replaced) = (path("groups.routes[0]"), BTreeSet::new());
        assert!(take_out(&mut table, &wrong, &mut replaced));
        assert!(at(&mut table, &wrong).is_some(), "a route in the inbox");
        assert!(take_out(&mut table, &wrong, &mut replaced));
        assert!(at(&mut table, &path("groups.routes")).is_none());
        assert!(!take_out(&mut table, &wrong, &mut replaced));
    }
}
