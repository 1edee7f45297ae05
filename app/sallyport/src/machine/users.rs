//! The accounts of this machine.

use std::{path::PathBuf, process::Command};

/// An account of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// Its name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) user: u32,
    /// The number of its group.
    pub(crate) group: u32,
    /// Its home directory.
    pub(crate) home: PathBuf,
}

/// The account of this name or number. Asks getent(1), which knows directory services too.
pub(crate) fn of(who: &str) -> Option<Account> {
    if who.is_empty() || !who.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
        return None;
    }
    let output = Command::new("getent").args(["passwd", "--", who]).output().ok()?;
    parse(std::str::from_utf8(&output.stdout).ok()?)
}

/// A line of passwd(5).
fn parse(line: &str) -> Option<Account> {
    let fields: Vec<_> = line.lines().next()?.split(':').collect();
    let [name, _, user, group, _, home, ..] = fields.as_slice() else { return None };
    let name = (*name).to_owned();
    Some(Account { name, user: user.parse().ok()?, group: group.parse().ok()?, home: PathBuf::from(home) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nonsense_is_not() {
        let root = of("0").unwrap();
        assert_eq!((root.name.as_str(), root.user, root.group), ("root", 0, 0));
        assert_eq!(of("root"), Some(root));
        for nobody in ["", "--help", "no such", "a;b", "4294967294"] {
            assert_eq!(of(nobody), None, "{nobody}");
        }
        assert_eq!((parse(""), parse("a:b:c:d:e:f:g")), (None, None));
    }
}
