//! The certificate stores of browsers: NSS databases, one for Chromium and its derivatives, one in each profile of
//! Firefox.
//!
//! They belong to a person and not to the machine. NSS's `certutil`, run as that person, changes them.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sallyport_pki::{Fingerprint, RootInfo};
use serde::Serialize;

use crate::store::{MAX_REPEATED_BYTES, stem};

/// The package of `certutil` in Debian; `nss-tools` in Fedora, `nss` in Arch.
pub const CERTUTIL_PACKAGE: &str = "libnss3-tools";
/// Bound on the profiles of Firefox in one folder.
const MAX_PROFILES: usize = 64;
/// The databases of Chromium and its derivatives: a shared one, and another in the snap.
const CHROMIUM_STORES: &[&str] = &[".pki/nssdb", "snap/chromium/current/.pki/nssdb"];
/// The folders of Firefox profiles, in Debian, snap, flatpak and newer versions.
const FIREFOX_FOLDERS: &[&str] = &[
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
];
/// Programs that use the first of [`CHROMIUM_STORES`].
const CHROMIUM_PROGRAMS: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "brave-browser",
    "microsoft-edge",
    "vivaldi-stable",
];

/// The browser of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Browser {
    /// Chromium, Chrome and other derivatives.
    Chromium,
    /// Firefox.
    Firefox,
}

impl Browser {
    /// Its common name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chromium => "Chromium",
            Self::Firefox => "Firefox",
        }
    }
}

/// One certificate store of a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrowserStore {
    /// The browser.
    pub browser: Browser,
    /// The folder of the database.
    pub dir: PathBuf,
}

/// The result for one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrowserChange {
    /// The store.
    #[serde(flatten)]
    pub store: BrowserStore,
    /// Whether it was changed; false if it was already as wanted.
    pub changed: bool,
    /// Reason why it could not be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `certutil` is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "browsers have certificate stores of their own, and the program that changes them is missing: install \
     {CERTUTIL_PACKAGE}"
)]
pub struct NoCertutil;

/// The person whose browsers are changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The home directory.
    pub home: PathBuf,
    /// The user and group, if this process is root and acts for another user.
    pub ids: Option<(u32, u32)>,
}

/// The certificate stores of a person's browsers.
#[derive(Debug)]
pub struct BrowserStores {
    person: Person,
    /// Folders with programs.
    path: Vec<PathBuf>,
}

impl BrowserStores {
    /// The stores of this person; programs are searched for in these folders.
    #[must_use]
    pub fn of(person: Person, path: Vec<PathBuf>) -> Self {
        Self { person, path }
    }

    /// Every existing store, and that of an installed Chromium that has not created one yet.
    #[must_use]
    pub fn all(&self) -> Vec<BrowserStore> {
        let home = &self.person.home;
        let first = home.join(CHROMIUM_STORES[0]);
        let mut found = Vec::new();
        for dir in CHROMIUM_STORES.iter().map(|dir| home.join(dir)) {
            if dir.join("cert9.db").is_file() || (dir == first && self.has_chromium()) {
                found.push(BrowserStore { browser: Browser::Chromium, dir });
            }
        }
        for folder in FIREFOX_FOLDERS {
            let profiles = fs::read_dir(home.join(folder)).into_iter().flatten().take(MAX_PROFILES).flatten();
            let mut profiles: Vec<_> = profiles.map(|entry| entry.path()).collect();
            profiles.sort();
            let used = profiles.into_iter().filter(|dir| dir.join("cert9.db").is_file());
            found.extend(used.map(|dir| BrowserStore { browser: Browser::Firefox, dir }));
        }
        found
    }

    fn has_chromium(&self) -> bool {
        CHROMIUM_PROGRAMS.iter().any(|name| self.program(name).is_some())
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
    }

    fn certutil(&self) -> Result<PathBuf, NoCertutil> {
        self.program("certutil").ok_or(NoCertutil)
    }

    /// Checks that these stores can be changed; without stores nothing is needed.
    ///
    /// # Errors
    /// There are stores, but no `certutil`.
    pub fn check(&self) -> Result<(), NoCertutil> {
        if self.all().is_empty() { Ok(()) } else { self.certutil().map(drop) }
    }

    /// Adds the root to each store. Idempotent.
    ///
    /// # Errors
    /// There is no `certutil`; the failure of one store is in its [`BrowserChange`].
    pub fn install(&self, root: &RootInfo) -> Result<Vec<BrowserChange>, NoCertutil> {
        self.change(|certutil, store| {
            let name = stem(root.fingerprint);
            if !store.dir.join("cert9.db").is_file() {
                self.run(Path::new("mkdir"), &["-p".into(), "-m".into(), "700".into(), store.dir.clone().into()], "")?;
                self.run(certutil, &["-N".into(), "-d".into(), database(store), "--empty-password".into()], "")?;
            } else if self.holds(certutil, store, &name) {
                return Ok(false);
            }
            // `C`: trusted for servers, and for nothing else.
            let add = ["-A", "-a", "-t", "C,,", "-f", "/dev/null", "-n", &name, "-d"];
            let mut arguments: Vec<_> = add.map(Into::into).to_vec();
            arguments.push(database(store));
            let added = self.run(certutil, &arguments, &root.to_pem());
            if added.is_err() {
                // A store with a password accepts the certificate before it refuses the trust.
                let mut undo: Vec<_> = ["-D", "-f", "/dev/null", "-n", &name, "-d"].map(Into::into).to_vec();
                undo.push(database(store));
                drop(self.run(certutil, &undo, ""));
            }
            added.map(|()| true)
        })
    }

    /// Removes the root with this fingerprint from each store that [`BrowserStores::install`] added it to.
    ///
    /// # Errors
    /// As for [`BrowserStores::install`].
    pub fn remove(&self, fingerprint: Fingerprint) -> Result<Vec<BrowserChange>, NoCertutil> {
        self.change(|certutil, store| {
            let name = stem(fingerprint);
            if !store.dir.join("cert9.db").is_file() || !self.holds(certutil, store, &name) {
                return Ok(false);
            }
            let mut arguments: Vec<_> = ["-D", "-f", "/dev/null", "-n", &name, "-d"].map(Into::into).to_vec();
            arguments.push(database(store));
            self.run(certutil, &arguments, "").map(|()| true)
        })
    }

    /// The stores without the root with this fingerprint.
    ///
    /// # Errors
    /// There are stores, but no `certutil`.
    pub fn lacking(&self, fingerprint: Fingerprint) -> Result<Vec<BrowserStore>, NoCertutil> {
        let mut all = self.all();
        if all.is_empty() {
            return Ok(all);
        }
        let certutil = self.certutil()?;
        all.retain(|store| !self.holds(&certutil, store, &stem(fingerprint)));
        Ok(all)
    }

    fn change(
        &self,
        change: impl Fn(&Path, &BrowserStore) -> Result<bool, String>,
    ) -> Result<Vec<BrowserChange>, NoCertutil> {
        let all = self.all();
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let certutil = self.certutil()?;
        let changes = all.into_iter().map(|store| match change(&certutil, &store) {
            Ok(changed) => BrowserChange { store, changed, error: None },
            Err(error) => BrowserChange { store, changed: false, error: Some(error) },
        });
        Ok(changes.collect())
    }

    fn holds(&self, certutil: &Path, store: &BrowserStore, name: &str) -> bool {
        let arguments = ["-L".into(), "-n".into(), name.into(), "-d".into(), database(store)];
        self.run(certutil, &arguments, "").is_ok()
    }

    /// Runs a program as the person, with an empty environment and without a terminal.
    fn run(&self, program: &Path, arguments: &[std::ffi::OsString], input: &str) -> Result<(), String> {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("HOME", &self.person.home).env("LC_ALL", "C").current_dir("/");
        command.env("PATH", std::env::join_paths(&self.path).unwrap_or_else(|_| "/usr/bin:/bin".into()));
        if let Some((user, group)) = self.person.ids {
            command.uid(user).gid(group);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ran = || -> io::Result<std::process::Output> {
            let mut child = command.spawn()?;
            // Dropped at once, because the program reads to the end. A program that does not read reports its own
            // error.
            let written = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
            let output = child.wait_with_output()?;
            if output.status.success() { written.transpose().map(|_| output) } else { Ok(output) }
        };
        let output = ran().map_err(|error| format!("{}: {error}", program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        if stderr.contains("SEC_ERROR_BAD_PASSWORD") {
            return Err("the store has a password".to_owned());
        }
        let stderr = stderr.trim();
        let end = stderr.floor_char_boundary(MAX_REPEATED_BYTES);
        Err(if stderr.is_empty() { output.status.to_string() } else { stderr[..end].replace('\n', "; ") })
    }
}

fn database(store: &BrowserStore) -> std::ffi::OsString {
    let mut name = std::ffi::OsString::from("sql:");
    name.push(&store.dir);
    name
}
