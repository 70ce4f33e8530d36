//! What stands in the file: settings, profiles, rules. Everything is checked, and every mistake is told.

use super::place::{Place, SYSTEM_WIDE};
use super::rule;
use super::text::{Problem, Text, nearest, scalar};
use bypath_sockets::config::{Config, SETTINGS, Setting};
use bypath_sockets::rules::Rule;
use bypath_sys::{Errno, no_magic};
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A checked file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path.
    pub path: PathBuf,
    /// Settings for every program.
    pub settings: Vec<Given>,
    /// The profiles that it defines.
    pub profiles: Vec<Profile>,
    /// The rules in order.
    pub rules: Vec<Rule>,
}

/// A value given to a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The setting.
    pub setting: &'static Setting,
    /// The value as a flag would take it.
    pub value: String,
    /// Where it stands.
    pub line: u32,
}

/// A named set of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// The built-in profile that it starts from.
    pub like: &'static str,
    /// Where it begins.
    pub line: u32,
    /// What it sets.
    pub settings: Vec<Given>,
}

/// What a profile may set.
const OF_PROFILES: &[&str] = &[
    "upgrade",
    "spin-budget",
    "upgrade-calls",
    "upgrade-bytes",
    "connection-limit",
    "ring-size",
    "memory-limit",
];

/// The tables of a file.
const TABLES: &[&str] = &["settings", "profiles", "rules"];

/// Octets of a file that nobody named.
const MOST_OCTETS: u64 = 1 << 20;

/// Rules a file may have.
const MOST_RULES: usize = 1000;

/// Names of the built-in profiles.
pub fn built_in_profiles() -> &'static [&'static str] {
    SETTINGS.iter().find(|s| s.flag == "profile").map_or(&[], |s| s.words)
}

/// Reads and checks the file of a place, if there is one.
///
/// # Errors
/// It cannot be read; what is wrong in it is no error here, but listed.
pub fn read(place: &Place) -> io::Result<Option<(File, Vec<Problem>)>> {
    let (path, bytes) = match place {
        Place::Named(path) => (path, fs::read(path)?),
        Place::Found(path) => (path, read_found(path)?),
        Place::Off | Place::Nowhere(_) => return Ok(None),
    };
    Ok(Some(match std::str::from_utf8(&bytes) {
        Ok(text) => parse(path, text),
        Err(e) => {
            let good = std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or_default();
            let text = Text::new(good);
            text.error(&(good.len()..good.len()), "not valid UTF-8".to_owned(), None);
            (empty(path), text.into_problems())
        }
    }))
}

/// Nobody named it: in a HOME that `su` or `sudo -E` has kept it is another user's, who would decide with whom these programs share
/// memory. Nor may he say where it is, by a link in a folder of his.
fn read_found(path: &Path) -> io::Result<Vec<u8>> {
    // In a user namespace root's files may be anybody's, and who may write there is trusted anyway.
    let file = if path == Path::new(SYSTEM_WIDE) {
        fs::OpenOptions::new().read(true).custom_flags(CAREFUL).open(path)?
    } else {
        open_trusted(path)?
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MOST_OCTETS + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_OCTETS {
        return Err(io::Error::other(format!("longer than {MOST_OCTETS} bytes")));
    }
    Ok(bytes)
}

/// What is not a file keeps nobody waiting.
const CAREFUL: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32;

/// Each name is looked up in the folder that was checked, and what was checked is what is read: who exchanges names meanwhile changes nothing.
fn open_trusted(path: &Path) -> io::Result<fs::File> {
    const LOOK: i32 = OFlags::PATH.bits() as i32;
    const NOT_BY_LINK: i32 = OFlags::NOFOLLOW.bits() as i32;
    // The file, its folder, and the one of all settings; of `~/.config` the home, too.
    let base = path.ancestors().nth(2).and_then(Path::file_name);
    let most = if base.is_some_and(|name| name == ".config") { 4 } else { 3 };
    let mut parts: Vec<&Path> = path.ancestors().take(most).collect();
    let above = parts.last().and_then(|part| part.parent()).unwrap_or(Path::new("/"));
    let mut folder = open(None, above, LOOK, above)?;
    while let Some(part) = parts.pop() {
        let name = part.components().next_back().map_or(part, |name| Path::new(name.as_os_str()));
        let named = open(Some(&folder), name, LOOK | NOT_BY_LINK, part)?;
        let metadata = named.metadata()?;
        check_trusted(part, &metadata)?;
        let link = match metadata.is_symlink() {
            true => Some(PathBuf::from(OsString::from_vec(
                rustix::fs::readlinkat(&named, c"", Vec::new())?.into_bytes(),
            ))),
            false => None,
        };
        folder = match link {
            Some(to) => open(Some(&folder), &to, if parts.is_empty() { CAREFUL } else { LOOK }, part)?,
            None if parts.is_empty() => open(Some(&folder), name, CAREFUL | NOT_BY_LINK, part)?,
            None => named,
        };
        check_trusted(part, &folder.metadata()?)?;
    }
    if no_magic::is_of_kernel(&folder) {
        let text = "the kernel makes its text, of what any user may have said";
        return Err(io::Error::other(format!("{}: {text}", path.display())));
    }
    Ok(folder)
}

/// By no link of `/proc`: in what another process has mounted for itself its user says whose the files are.
fn open(folder: Option<&fs::File>, path: &Path, flags: i32, part: &Path) -> io::Result<fs::File> {
    no_magic::open(folder, path, flags).map_err(|e| {
        if e.raw_os_error() != Some(Errno::LOOP.raw_os_error()) {
            return e;
        }
        let part = part.display();
        io::Error::other(format!("{part} is reached by a link of /proc, or by too many links"))
    })
}

fn check_trusted(part: &Path, metadata: &fs::Metadata) -> io::Result<()> {
    let (owner, own, mode) = (metadata.uid(), bypath_sys::process::euid(), metadata.mode());
    let part = part.display();
    if ![0, own].contains(&owner) {
        return Err(io::Error::other(format!("{part} belongs to user {owner}, not to {own}")));
    }
    // In a sticky folder nobody replaces what is another one's; a link has no mode of its own.
    if mode & 0o1002 == 0o002 && !metadata.is_symlink() {
        return Err(io::Error::other(format!("{part} can be written by everybody (chmod o-w {part})")));
    }
    Ok(())
}

fn empty(path: &Path) -> File {
    File { path: path.to_owned(), settings: Vec::new(), profiles: Vec::new(), rules: Vec::new() }
}

/// Checks a file's text.
pub(super) fn parse(path: &Path, source: &str) -> (File, Vec<Problem>) {
    let (root, errors) = DeTable::parse_recoverable(source);
    let text = Text::new(source);
    let mut file = empty(path);
    for (key, value) in root.get_ref() {
        match (&**key.get_ref(), value.get_ref()) {
            ("settings", DeValue::Table(table)) => file.settings = settings(&text, table),
            ("profiles", DeValue::Table(table)) => file.profiles = profiles(&text, table),
            ("rules", DeValue::Array(array)) => {
                for (i, element) in array.iter().enumerate() {
                    match element.get_ref() {
                        DeValue::Table(table) if i < MOST_RULES => {
                            file.rules.extend(rule::parse(&text, i + 1, &element.span(), table));
                        }
                        DeValue::Table(_) if i == MOST_RULES => {
                            text.error(&element.span(), format!("more than {MOST_RULES} rules"), None);
                        }
                        DeValue::Table(_) => {}
                        other => text.wrong_type(&element.span(), "rules", "[[rules]] tables", other),
                    }
                }
            }
            ("rules", DeValue::Table(_)) => {
                text.error(&key.span(), "rules are a list".to_owned(), Some("[[rules]]".to_owned()));
            }
            (name @ ("settings" | "profiles" | "rules"), other) => {
                let table = if name == "rules" { "[[rules]] tables" } else { "a table" };
                text.wrong_type(&value.span(), name, table, other);
            }
            (name, _) => {
                if SETTINGS.iter().any(|s| s.flag == name) {
                    text.error(&key.span(), format!("'{name}' must stand under [settings]"), None);
                } else {
                    let meant = nearest(name, TABLES.iter().copied());
                    text.error(&key.span(), format!("unknown table or key '{name}'"), meant);
                }
            }
        }
    }
    check_profile_names(&text, root.get_ref(), &file);
    rule::warn_about_unreachable(&text, root.get_ref(), &file.rules);
    text.syntax(&errors);
    (file, text.into_problems())
}

/// The entries of a table in the order of the file.
fn in_order<'t, 'i>(
    table: &'t DeTable<'i>,
) -> Vec<(&'t Spanned<toml::de::DeString<'i>>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn settings(text: &Text, table: &DeTable) -> Vec<Given> {
    let mut given = Vec::new();
    for (key, value) in in_order(table) {
        let name: &str = key.get_ref();
        match SETTINGS.iter().find(|s| s.flag == name) {
            Some(setting) => given.extend(one_setting(text, setting, &key.span(), value)),
            None => {
                let meant = nearest(name, SETTINGS.iter().map(|s| s.flag));
                text.error(&key.span(), format!("unknown setting '{name}'"), meant);
            }
        }
    }
    given
}

fn takes_numbers(setting: &Setting) -> bool {
    ["BYTES", "NUMBER", "TIME", "UID"].iter().any(|kind| setting.value.starts_with(kind))
}

/// A setting's value, checked.
fn one_setting(
    text: &Text,
    setting: &'static Setting,
    key: &Range<usize>,
    value: &Spanned<DeValue>,
) -> Option<Given> {
    let span = value.span();
    let written = match value.get_ref() {
        DeValue::Array(array) if setting.flag == "allow-uid" => {
            let words: Vec<Option<String>> = array
                .iter()
                .map(|v| {
                    let word = scalar(v.get_ref());
                    if word.is_none() {
                        text.wrong_type(&v.span(), setting.flag, "numbers and strings", v.get_ref());
                    }
                    word
                })
                .collect();
            words.into_iter().collect::<Option<Vec<_>>>()?.join(",")
        }
        v @ (DeValue::String(_) | DeValue::Integer(_)) if v.is_str() || takes_numbers(setting) => {
            scalar(v).or_else(|| {
                text.error(&span, format!("'{}' is a number out of range", setting.flag), None);
                None
            })?
        }
        other => {
            let expected = match setting.flag {
                "allow-uid" => "a number, a string, or an array of them",
                _ if takes_numbers(setting) => "a string or a number",
                _ => "a string",
            };
            text.wrong_type(&span, setting.flag, expected, other);
            return None;
        }
    };
    if setting.flag == "stats" && !written.starts_with('/') {
        let message = format!("invalid value '{written}' for stats: expected an absolute path");
        text.error(&span, message, None);
        return None;
    }
    // Names of profiles are checked when all of them are known.
    if setting.flag != "profile"
        && let Err(e) = Config::default().set(setting.flag, &written)
    {
        let message = format!("invalid value '{written}' for {}: expected {}", setting.flag, e.expected);
        text.error(&span, message, e.suggestion);
        return None;
    }
    Some(Given { setting, value: written, line: text.line(key) })
}

fn profiles(text: &Text, table: &DeTable) -> Vec<Profile> {
    let mut profiles = Vec::new();
    for (key, value) in in_order(table) {
        let name: &str = key.get_ref();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let built_in = built_in_profiles().contains(&name);
        if built_in {
            text.error(&key.span(), format!("profile '{name}' is built in and cannot be redefined"), None);
        } else if name.is_empty() || !name.chars().all(plain) {
            text.error(
                &key.span(),
                format!("profile name '{name}' has other characters than letters, digits, - and _"),
                None,
            );
        }
        match value.get_ref() {
            DeValue::Table(table) => {
                let profile = profile(text, name, &key.span(), table);
                profiles.extend((!built_in).then_some(profile));
            }
            other => text.wrong_type(&value.span(), name, "a table [profiles.NAME]", other),
        }
    }
    profiles
}

fn profile(text: &Text, name: &str, at: &Range<usize>, table: &DeTable) -> Profile {
    let mut profile =
        Profile { name: name.to_owned(), like: "balanced", line: text.line(at), settings: Vec::new() };
    for (key, value) in in_order(table) {
        let flag: &str = key.get_ref();
        let setting = SETTINGS.iter().find(|s| s.flag == flag);
        match setting.filter(|s| OF_PROFILES.contains(&s.flag)) {
            Some(setting) => profile.settings.extend(one_setting(text, setting, &key.span(), value)),
            None if flag == "like" => match value.get_ref() {
                DeValue::String(base) => match built_in_profiles().iter().find(|p| **p == base.as_ref()) {
                    Some(base) => profile.like = base,
                    None => {
                        let words = built_in_profiles();
                        let message =
                            format!("invalid value '{base}' for like: expected {}", words.join(", "));
                        text.error(&value.span(), message, nearest(base, words.iter().copied()));
                    }
                },
                other => text.wrong_type(&value.span(), "like", "a string", other),
            },
            None if setting.is_some() => {
                text.error(
                    &key.span(),
                    format!("'{flag}' cannot be set by a profile, only under [settings]"),
                    None,
                );
            }
            None => {
                let meant = nearest(flag, OF_PROFILES.iter().copied().chain(["like"]));
                text.error(&key.span(), format!("unknown key '{flag}' in profile '{name}'"), meant);
            }
        }
    }
    profile
}

/// Whether `profile = ...` under `[settings]` names one that there is.
fn check_profile_names(text: &Text, root: &DeTable, file: &File) {
    let Some(given) = file.settings.iter().find(|g| g.setting.flag == "profile") else { return };
    let names = || built_in_profiles().iter().copied().chain(file.profiles.iter().map(|p| p.name.as_str()));
    if names().any(|n| n == given.value) {
        return;
    }
    let all: Vec<&str> = names().collect();
    let message = format!("invalid value '{}' for profile: expected {}", given.value, all.join(", "));
    let span = root.get("settings").and_then(|s| s.get_ref().get("profile")).map_or(0..0, |v| v.span());
    text.error(&span, message, nearest(&given.value, names()));
}

#[cfg(test)]
mod tests;
