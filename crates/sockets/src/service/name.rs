//! Names of netstack services.

use bypath_shm::service::{LONGEST_NAME, is_name};
use std::fmt;

/// The name of a netstack service, kept inline.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServiceName {
    bytes: [u8; LONGEST_NAME],
    len: u8,
}

impl ServiceName {
    /// That of a service for which nobody chose one.
    pub const DEFAULT: &str = "default";

    /// A name, if it may be one: see [`is_name`].
    pub fn new(name: &str) -> Option<ServiceName> {
        if !is_name(name) {
            return None;
        }
        let mut bytes = [0; LONGEST_NAME];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(ServiceName { bytes, len: name.len() as u8 })
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Default for ServiceName {
    fn default() -> ServiceName {
        let mut name = ServiceName { bytes: [0; LONGEST_NAME], len: Self::DEFAULT.len() as u8 };
        name.bytes[..Self::DEFAULT.len()].copy_from_slice(Self::DEFAULT.as_bytes());
        name
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_and_others_refused() {
        assert_eq!(ServiceName::new("lab-1").unwrap().as_str(), "lab-1");
        assert_eq!(ServiceName::new("default"), Some(ServiceName::default()));
        assert_eq!(ServiceName::new(&"x".repeat(32)).unwrap().to_string(), "x".repeat(32));
        assert!(["", ".a", "a/b", &"x".repeat(33)].into_iter().all(|bad| ServiceName::new(bad).is_none()));
    }
}
