//! Netstack services that a program is to have sockets of: they must be there before it starts.

use crate::cmd::netstack::found;
use crate::config::Effective;
use crate::output;
use crate::program;
use bypath_sockets::rules::{Action, Rule};
use std::path::Path;

/// Looks whether they are there. A program whose rules alone name one is started without: some of its sockets may be others.
///
/// # Errors
/// The one of `--netstack` is not: what to say.
pub fn check(effective: &Effective, file: &Path) -> Result<(), String> {
    let wanted = effective.config.netstack;
    if let Some(name) = wanted {
        found::awaited(name.as_str(), 125, true).map_err(|e| e.to_string())?;
    }
    let Some(settings) = &effective.file else { return Ok(()) };
    let names = program::names(file);
    let rules: Vec<&Rule> = settings.rules.iter().filter(|rule| rule.is_about_program(&names)).collect();
    let mut named: Vec<_> = rules
        .iter()
        .filter_map(|rule| match rule.action {
            Action::Netstack(name) => Some(name.or(wanted).unwrap_or_default()),
            Action::Ring | Action::Kernel => None,
        })
        .filter(|name| Some(*name) != wanted)
        .collect();
    named.sort_by_key(|name| name.to_string());
    named.dedup();
    for name in named {
        if let Err(e) = found::awaited(name.as_str(), 125, false) {
            output::message(format_args!("warning: rules of {} name it: {e}", settings.path.display()));
        }
    }
    let others: Vec<String> = rules
        .iter()
        .filter(|rule| wanted.is_some() && !matches!(rule.action, Action::Netstack(_)))
        .map(|rule| format!("{} (line {}): {}", rule.number, rule.line, rule.action))
        .collect();
    if !others.is_empty() {
        output::message(format_args!(
            "note: --netstack is for what no rule is about; {} has rule {}",
            settings.path.display(),
            others.join(", rule ")
        ));
    }
    Ok(())
}
