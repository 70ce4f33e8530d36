//! Flag, environment, file, default: which value of each setting counts, and where it comes from.

use super::file::{File, Given, Profile, built_in_profiles};
use super::text::nearest;
use super::{Place, SettingsError};
use crate::args::Settings;
use bypath_sockets::config::{Config, ConfigError, SETTINGS, Setting};
use bypath_sockets::rules::text::{self, Document};
use std::ffi::OsString;

/// Where a value was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    Flag,
    /// In the environment.
    Environment,
    /// In the file, on this line.
    File(u32),
    /// Nowhere.
    Default,
}

/// The value of a setting that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The setting.
    pub setting: &'static Setting,
    /// The value as a flag would take it; empty = not set.
    pub text: String,
    /// Where it was given; for the value of a profile, where the profile was chosen.
    pub origin: Origin,
    /// The profile that gives it, and its line in the file if it is not built in.
    pub profile: Option<(String, Option<u32>)>,
}

/// What holds for a program.
#[derive(Debug)]
pub struct Effective {
    /// The file.
    pub place: Place,
    /// What stands in it.
    pub file: Option<File>,
    /// Every setting, in the order of [`SETTINGS`].
    pub values: Vec<Value>,
    /// The same for the library.
    pub config: Config,
    /// The built-in profile that the chosen one is, or is like.
    base: &'static str,
}

/// The settings of one layer.
struct Layer {
    origin: fn(u32) -> Origin,
    given: Vec<Given>,
}

/// Decides.
///
/// # Errors
/// A bad value in the environment, or the name of a profile that there is not.
pub fn resolve(
    place: Place,
    file: Option<File>,
    flags: &Settings,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Effective, SettingsError> {
    let flag_layer =
        Layer { origin: |_| Origin::Flag, given: given_by(|s| Ok(flags.value(s).map(str::to_owned)))? };
    let environment_layer = Layer {
        origin: |_| Origin::Environment,
        given: given_by(|s| {
            // What a flag replaces is not looked at.
            if flags.value(s).is_some() {
                return Ok(None);
            }
            let value = environment(s.variable).map(OsString::into_string).transpose();
            value.map_err(|_| SettingsError::NotUtf8(s.variable))
        })?,
    };
    let file_layer =
        Layer { origin: Origin::File, given: file.as_ref().map(|f| f.settings.clone()).unwrap_or_default() };
    let layers = [flag_layer, environment_layer, file_layer];

    let chosen = layers.iter().enumerate().find_map(|(i, l)| Some((i, l.find("profile")?)));
    let chosen = match chosen {
        Some((i, given)) => Some((i, given, Chosen::named(given, file.as_ref(), (layers[i].origin)(0))?)),
        None => None,
    };
    let base = chosen.as_ref().map_or("balanced", |(.., c)| c.base());

    let mut config = Config::default();
    let mut values = Vec::new();
    for setting in SETTINGS {
        let value = layers.iter().enumerate().find_map(|(i, layer)| {
            if let Some(given) = layer.find(setting.flag) {
                let origin = (layer.origin)(given.line);
                return Some(Value { setting, text: given.value.clone(), origin, profile: None });
            }
            let (_, at, chosen) = chosen.as_ref().filter(|(chosen_in, ..)| *chosen_in == i)?;
            let (text, name) = chosen.value(setting)?;
            Some(Value { setting, text, origin: (layer.origin)(at.line), profile: Some(name) })
        });
        let value = value.unwrap_or_else(|| Value {
            setting,
            text: setting.default.to_owned(),
            origin: Origin::Default,
            profile: None,
        });
        let text = if setting.flag == "profile" { base } else { &value.text };
        if value.origin != Origin::Default {
            config.set(setting.flag, text).map_err(|e| ConfigError { flag: setting.variable, ..e })?;
        }
        values.push(value);
    }
    Ok(Effective { place, file, values, config, base })
}

fn given_by(
    value: impl Fn(&'static Setting) -> Result<Option<String>, SettingsError>,
) -> Result<Vec<Given>, SettingsError> {
    let mut all = Vec::new();
    for setting in SETTINGS {
        all.extend(value(setting)?.map(|value| Given { setting, value, line: 0 }));
    }
    Ok(all)
}

impl Layer {
    fn find(&self, flag: &str) -> Option<&Given> {
        self.given.iter().find(|g| g.setting.flag == flag)
    }
}

/// The profile that counts.
enum Chosen<'f> {
    BuiltIn(&'static str),
    Defined(&'f Profile),
}

impl<'f> Chosen<'f> {
    fn named(given: &Given, file: Option<&'f File>, origin: Origin) -> Result<Self, ConfigError> {
        let defined = file.map_or(&[][..], |f| &f.profiles);
        if let Some(name) = built_in_profiles().iter().find(|n| **n == given.value) {
            return Ok(Chosen::BuiltIn(name));
        }
        if let Some(profile) = defined.iter().find(|p| p.name == given.value) {
            return Ok(Chosen::Defined(profile));
        }
        let names = || built_in_profiles().iter().copied().chain(defined.iter().map(|p| p.name.as_str()));
        let flag = if origin == Origin::Flag { "--profile" } else { given.setting.variable };
        Err(ConfigError {
            flag,
            value: given.value.clone(),
            expected: names().collect::<Vec<_>>().join(", "),
            suggestion: nearest(&given.value, names()),
        })
    }

    fn base(&self) -> &'static str {
        match self {
            Chosen::BuiltIn(name) => name,
            Chosen::Defined(profile) => profile.like,
        }
    }

    /// What the profile sets, and which profile that is.
    fn value(&self, setting: &Setting) -> Option<(String, (String, Option<u32>))> {
        if let Chosen::Defined(profile) = self
            && let Some(own) = profile.settings.iter().find(|g| g.setting.flag == setting.flag)
        {
            return Some((own.value.clone(), (profile.name.clone(), Some(own.line))));
        }
        let budget = (setting.flag == "spin-budget").then(|| spin_budget_of(self.base()))?;
        Some((budget, (self.base().to_owned(), None)))
    }
}

/// The spin budget that a built-in profile sets.
fn spin_budget_of(profile: &str) -> String {
    let mut config = Config::default();
    config.set("profile", profile).expect("a built-in profile");
    match config.spin_budget_ns {
        0 => "0".to_owned(),
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{}us", ns / 1000),
    }
}

impl Effective {
    /// The value of a setting.
    pub fn value(&self, flag: &str) -> &Value {
        self.values.iter().find(|v| v.setting.flag == flag).expect("every setting has a value")
    }

    /// As the library takes it: it knows the built-in profiles only.
    fn for_library(&self, value: &Value) -> String {
        if value.setting.flag == "profile" { self.base.to_owned() } else { value.text.clone() }
    }

    /// Whether the library gets this value by the profile alone.
    fn follows_from_profile(&self, value: &Value) -> bool {
        value.setting.flag == "spin-budget"
            && value.profile.is_some()
            && value.text == spin_budget_of(self.base)
    }

    /// The variables for the program: what came from flags and environment, by their settings, and the rest as
    /// [`text::VARIABLE`]. `None` = to be removed.
    ///
    /// # Errors
    /// The rules do not fit.
    pub fn variables(&self) -> Result<Vec<(&'static str, Option<OsString>)>, SettingsError> {
        let mut variables: Vec<(&'static str, Option<OsString>)> = Vec::new();
        for value in &self.values {
            match value.origin {
                Origin::Flag | Origin::Environment => {
                    let text = (!self.follows_from_profile(value)).then(|| self.for_library(value).into());
                    variables.push((value.setting.variable, text));
                }
                Origin::File(_) | Origin::Default => {}
            }
        }
        variables.push((text::VARIABLE, self.document()?.map(OsString::from)));
        if let Some(name) = self.place.variable() {
            variables.push((super::VARIABLE, Some(name)));
        }
        Ok(variables)
    }

    /// What came from the file, for the library.
    fn document(&self) -> Result<Option<String>, SettingsError> {
        let Some(file) = &self.file else { return Ok(None) };
        let from_file = |v: &&Value| matches!(v.origin, Origin::File(_)) && !self.follows_from_profile(v);
        let document = Document {
            file: file.path.to_string_lossy().into_owned(),
            settings: self
                .values
                .iter()
                .filter(from_file)
                .map(|v| (v.setting.flag.to_owned(), self.for_library(v)))
                .collect(),
            rules: file.rules.clone(),
        };
        if document.settings.is_empty() && document.rules.is_empty() {
            return Ok(None);
        }
        let text = document.encode();
        if text.len() > text::LONGEST {
            return Err(SettingsError::TooLong { path: file.path.clone(), length: text.len() });
        }
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::path::Path;

    const FILE: &str = "[settings]\nprofile = \"web\"\nmemory-limit = \"1G\"\n\
                        [profiles.web]\nlike = \"latency\"\nring-size = \"64K\"\nspin-budget = \"7us\"\n\
                        [profiles.other]\nlike = \"frugal\"\nupgrade-calls = 3\n\
                        [[rules]]\nprogram = \"x\"\naction = \"kernel\"\n";

    fn effective(
        flags: &[&str],
        environment: &[(&str, &str)],
        file: &str,
    ) -> Result<Effective, SettingsError> {
        let (file, problems) = super::super::file::parse(Path::new("/f"), file);
        assert_eq!(problems, []);
        let words = ["bypath", "run"].iter().chain(flags).chain(&["prog"]);
        let parsed: crate::args::Cli = clap::Parser::try_parse_from(words).unwrap();
        let crate::args::Command::Run(args) = parsed.command else { panic!() };
        let environment: HashMap<_, _> = environment.iter().copied().collect();
        resolve(Place::Named("/f".into()), Some(file), &args.settings, |name| {
            environment.get(name).map(OsString::from)
        })
    }

    /// Flags and variables.
    type Given<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

    /// Value, origin and profile of a setting.
    fn told(e: &Effective, flag: &str) -> (String, Origin, Option<String>) {
        let v = e.value(flag);
        (v.text.clone(), v.origin, v.profile.clone().map(|(name, _)| name))
    }

    fn own(text: &str, origin: Origin) -> (String, Origin, Option<String>) {
        (text.to_owned(), origin, None)
    }

    fn by(profile: &str, text: &str, origin: Origin) -> (String, Origin, Option<String>) {
        (text.to_owned(), origin, Some(profile.to_owned()))
    }

    /// What the library makes of the variables.
    fn as_the_library_sees_it(e: &Effective, inherited: &[(&str, &str)]) -> Config {
        let mut environment: HashMap<String, String> =
            inherited.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        for (name, value) in e.variables().unwrap() {
            match value {
                Some(value) => environment.insert(name.to_owned(), value.into_string().unwrap()),
                None => environment.remove(name),
            };
        }
        let mut config = Config::default();
        if let Some(text) = environment.get(text::VARIABLE) {
            Document::decode(text).unwrap().configure(&mut config).unwrap();
        }
        config.apply_env(|n| environment.get(n).map(String::as_str), |e| panic!("{e}"));
        config
    }

    #[test]
    fn each_layer_wins_over_those_below() {
        let all: [(&str, Given); 3] = [
            ("1M", (&["--memory-limit=1M"], &[("BYPATH_MEMORY_LIMIT", "2M")])),
            ("2M", (&[], &[("BYPATH_MEMORY_LIMIT", "2M")])),
            ("1G", (&[], &[])),
        ];
        let origins = [Origin::Flag, Origin::Environment, Origin::File(3)];
        for ((text, (flags, environment)), origin) in all.into_iter().zip(origins) {
            let e = effective(flags, environment, FILE).unwrap();
            assert_eq!(told(&e, "memory-limit"), own(text, origin));
        }
        let e = effective(&[], &[], "").unwrap();
        assert_eq!(told(&e, "memory-limit"), own("256M", Origin::Default));
        assert_eq!(e.config, Config::default());
    }

    #[test]
    fn a_profile_counts_where_it_was_chosen() {
        let e = effective(&[], &[], FILE).unwrap();
        assert_eq!(told(&e, "profile"), own("web", Origin::File(2)));
        assert_eq!(told(&e, "ring-size"), by("web", "64K", Origin::File(2)));
        // Only the profile that wins is applied.
        let e = effective(&["--profile=other"], &[("BYPATH_PROFILE", "web")], FILE).unwrap();
        assert_eq!(told(&e, "ring-size"), own("256K", Origin::Default));
        assert_eq!(told(&e, "upgrade-calls"), by("other", "3", Origin::Flag));
        assert_eq!(told(&e, "spin-budget"), by("frugal", "0", Origin::Flag));
        // It wins over what is given below, and loses against what is given beside it.
        let spin = [("BYPATH_SPIN_BUDGET", "9us"), ("BYPATH_PROFILE", "web")];
        let e = effective(&["--profile=latency"], &spin, FILE).unwrap();
        assert_eq!(told(&e, "spin-budget"), by("latency", "1ms", Origin::Flag));
        let e = effective(&[], &spin, FILE).unwrap();
        assert_eq!(told(&e, "spin-budget"), own("9us", Origin::Environment));
        assert_eq!(told(&e, "ring-size"), by("web", "64K", Origin::Environment));
    }

    #[test]
    fn the_library_comes_to_the_same_result() {
        let cases: [Given; 9] = [
            (&[], &[]),
            (&["--profile=latency"], &[]),
            (&["--profile=latency"], &[("BYPATH_SPIN_BUDGET", "9us")]),
            (&["--profile=other", "--upgrade-calls=5"], &[("BYPATH_UPGRADE_CALLS", "9")]),
            (&[], &[("BYPATH_PROFILE", "frugal")]),
            (&[], &[("BYPATH_PROFILE", "web")]),
            (&["--spin-budget=3us"], &[("BYPATH_PROFILE", "frugal")]),
            (&["--ring-size=32K"], &[("BYPATH_PROFILE", "web"), ("BYPATH_RING_SIZE", "16K")]),
            (&["--upgrade=eager", "--connection-limit=3", "--allow-uid=5"], &[("BYPATH_LOG", "info")]),
        ];
        for (flags, environment) in cases {
            for file in [FILE, &FILE.replace("profile = \"web\"", "spin-budget = \"4us\"")] {
                let e = effective(flags, environment, file).unwrap();
                assert_eq!(as_the_library_sees_it(&e, environment), e.config, "{flags:?} {environment:?}");
            }
        }
    }

    #[test]
    fn rules_reach_the_library_and_their_absence_too() {
        let e = effective(&[], &[], FILE).unwrap();
        let variables = e.variables().unwrap();
        let rules = |v: &[(&str, Option<OsString>)]| {
            v.iter().find(|(n, _)| *n == text::VARIABLE).and_then(|(_, v)| v.clone())
        };
        let text = rules(&variables).unwrap().into_string().unwrap();
        assert_eq!(Document::decode(&text).unwrap().rules, e.file.as_ref().unwrap().rules);
        assert!(variables.contains(&("BYPATH_CONFIG", Some("/f".into()))));
        let e = effective(&[], &[], "").unwrap();
        assert!(e.variables().unwrap().contains(&(text::VARIABLE, None)));
    }

    #[test]
    fn rules_that_do_not_fit_are_an_error() {
        let rule = format!("[[rules]]\naction = \"kernel\"\nprogram = \"{}\"\n", "x".repeat(200));
        let e = effective(&[], &[], &rule.repeat(400)).unwrap();
        assert!(matches!(e.variables(), Err(SettingsError::TooLong { length: 65537.., .. })));
    }

    #[test]
    fn bad_values_name_where_they_were_given() {
        let error = |flags: &[&str], environment: &[(&str, &str)]| {
            effective(flags, environment, FILE).unwrap_err().to_string()
        };
        let text = error(&[], &[("BYPATH_UPGRADE", "eagre")]);
        assert!(text.contains("BYPATH_UPGRADE") && text.contains("'eager'"), "{text}");
        let text = error(&["--profile=wbe"], &[]);
        assert!(
            text.contains("--profile") && text.contains("frugal, web, other") && text.contains("'web'"),
            "{text}"
        );
        let text = error(&[], &[("BYPATH_PROFILE", "oter")]);
        assert!(text.contains("BYPATH_PROFILE") && text.contains("'other'"), "{text}");
    }
}
